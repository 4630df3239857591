package redteam

import (
	"bytes"
	"strings"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/redteam/simnet"
)

// leftoverProbes are the probes of what remains after a step: values, processes and files.
type leftoverProbes struct{ secretProbes }

// endedSteps adds the probes of credentials after the end of their step, and of access to them by another user during
// the step.
func (c leftoverProbes) endedSteps() {
	c.sameStep()
	s := c.env()
	s.deliver = "{env: " + strings.ToUpper(s.name) + ", file: " + s.name + "}"
	name := strings.ToUpper(s.name)
	both := []secret{apiKey, s}
	about := []secret{s}
	c.secretive(Probe{ID: "control/left-behind", Title: "a file and a process that a step leaves behind have its value", Bypass: Positive, Control: true, allowed: reaches,
		step: "dying", binds: both, about: about, task: &task{Do: "keep", Names: []string{name, "API_KEY"}}, proof: handed(audit.SecretDeliver), outer: func(t *trial, _ Probe, said report) string {
			if !bytes.Contains(said.Answer, []byte(t.values[s.name])) {
				return "the environment does not have it: " + said.Error
			}
			return ""
		}})
	gone := handed(audit.SecretRevoke)
	c.secretive(Probe{ID: "after/environ", step: "later", Title: "read, in the next step, the environment of a process that the step left behind", Bypass: Environ, about: about, proof: gone, outer: unread,
		task: &task{Do: "rummage", Argv: []string{"/proc/[0-9]*/environ", "/proc/[0-9]*/cmdline", "/proc/[0-9]*/root/run/secrets/*"}}})
	c.secretive(Probe{ID: "after/tmpfs", step: "later", Title: "read the step's secret file, in the next step", Bypass: AfterStep, about: about, proof: gone, outer: unread,
		task: &task{Do: "rummage", Argv: []string{"/run/secrets/*", "/run/*/secrets/*", "/run/*"}}})
	c.secretive(Probe{ID: "after/memory", step: "later", Title: "read the guest's memory, in the next step", Bypass: AfterStep, about: about, proof: gone, outer: unread,
		task: &task{Do: "scan", Names: []string{"sk-"}, Argv: []string{"/proc/kcore", "/dev/mem", "/dev/kmem", "/dev/port", "/dev/vda", "/dev/vdb"}}})
	c.secretive(Probe{ID: "after/value", step: "later", Title: "send, in the next step, a value that its step left on the disk to the host that it was for", Bypass: AfterStep, about: about,
		proof: flagged("secret-after-step"), task: refusedTo(simnet.API, c.fill("GET /v1/{T} HTTP/1.1\r\nHost: {H}\r\nX-Data: {{"+name+"|base64}}\r\n\r\n", simnet.API, ""))})
	old := c.fill("GET /v1/{T} HTTP/1.1\r\nHost: {H}\r\nX-Api-Key: {{file:API_KEY|raw}}\r\n\r\n", simnet.API, "")
	c.secretive(Probe{ID: "after/placeholder", step: "later", Title: "send the placeholder of an ended step, in a step without a placeholder", Bypass: AfterStep, about: both[:1], task: refusedTo(simnet.API, old), proof: denied})
	old = c.fill("GET /v1/{T} HTTP/1.1\r\nHost: {H}\r\nX-Api-Key: {{file:API_KEY|raw}}\r\n\r\n", simnet.API, "")
	c.secretive(Probe{ID: "after/placeholder-old", Title: "send the placeholder of an ended step, in a step with another one", Bypass: AfterStep, binds: both[:1], task: refusedTo(simnet.API, old), proof: denied})
	c.secretive(Probe{ID: "after/unbound", step: "later", Title: "a request to a credential's host in a step that does not have it", Bypass: AfterStep, about: both[:1], proof: denied,
		task: refusedTo(simnet.API, c.fill("GET /v1/{T} HTTP/1.1\r\nHost: {H}\r\n\r\n", simnet.API, ""))})
}

// sameStep adds the probes by another user in the same step.
func (c leftoverProbes) sameStep() {
	for _, h := range []struct {
		id, title string
		files     []string
	}{
		{"environ", "the environment of the step's processes, from another user", []string{"/proc/[0-9]*/environ"}},
		{"tmpfs", "the step's files, from another user", []string{"/run/secrets", "/run/secrets/*", "/proc/[0-9]*/root/run/secrets/*"}},
	} {
		s := c.env()
		s.deliver = "{env: " + strings.ToUpper(s.name) + ", file: " + s.name + "}"
		c.secretive(Probe{ID: "user/" + h.id, step: "user", Title: h.title, Bypass: Environ, binds: []secret{s}, proof: handed(audit.SecretDeliver), outer: unread,
			task: &task{Do: "rummage", Argv: h.files, UID: 65534}})
	}
	s := c.env()
	c.secretive(Probe{ID: "control/environ-after-unset", Title: "/proc/PID/environ still has the value of a variable that the program unset", Bypass: Positive, Control: true, allowed: reaches,
		binds: []secret{s}, proof: handed(audit.SecretDeliver), task: &task{Do: "rummage", Names: []string{strings.ToUpper(s.name)}, Argv: []string{"/proc/[0-9]*/environ"}},
		outer: func(t *trial, p Probe, said report) string {
			if unread(t, p, said) == "" {
				return "it has not: " + said.Error
			}
			return ""
		}})
}

// unread fails a probe that read a secret's value.
func unread(t *trial, p Probe, said report) string {
	for _, s := range p.about {
		if shown(said.Answer, t.values[s.name]) != "" {
			return "it read the value of " + s.name
		}
	}
	return spilled(t, p, said)
}

// copies adds the probes of links from the workspace to files outside it.
func (c leftoverProbes) copies() {
	s := c.env()
	s.deliver = "{file: " + s.name + "}"
	add := func(id, title, path, to string, o outer) {
		c.secretive(Probe{ID: "copy/" + id, Title: title, Bypass: Links, step: "copies", binds: []secret{s}, proof: handed(audit.SecretDeliver), outer: o,
			task: &task{Do: "link", Path: path, Argv: []string{to}}})
	}
	add("out-link", "a link in the workspace to the step's secret, when the workspace is copied out", "link-"+c.token(), "/run/secrets/"+s.name, notOut)
	add("out-folder", "a link in the workspace to the directory of secrets, when the workspace is copied out", "folder-"+c.token(), "/run/secrets", notOut)
	add("out-proc", "a link in the workspace to the environment of a process, when the workspace is copied out", "proc-"+c.token(), "/proc/self/environ", notOut)
	c.secretive(Probe{ID: "control/out", Title: "a file in the workspace is copied out", Bypass: Positive, Control: true, step: "copies", binds: []secret{s}, allowed: reaches,
		task: &task{Do: "touch", Names: []string{"file-" + c.token()}}, proof: handed(audit.SecretDeliver), outer: func(t *trial, p Probe, _ report) string {
			for path := range t.kept.out {
				if strings.HasSuffix(path, "/file-"+p.token) {
					return ""
				}
			}
			return "it was not"
		}})
	c.secretive(Probe{ID: "copy/in-link", Title: "a link on the host that leads out of the workspace, when the workspace is copied in", Bypass: Links, step: "copies", binds: []secret{s}, proof: handed(audit.SecretDeliver),
		task: &task{Do: "rummage", Argv: []string{"/workspace/host-link", "/workspace/host-dir", "/workspace/host-dir/*", "{DIR}/*"}}, outer: func(t *trial, _ Probe, said report) string {
			if bytes.Contains(said.Answer, []byte(t.hostSecret())) {
				return "the sandbox read the host's file"
			}
			return ""
		}})
}

// notOut fails a probe if a file that was copied out contains a value.
func notOut(t *trial, p Probe, _ report) string {
	for path, text := range t.kept.out {
		if shown(text, t.values[p.about[0].name]) != "" || bytes.Contains(text, []byte(t.hostSecret())) {
			return path + " holds it"
		}
	}
	return ""
}
