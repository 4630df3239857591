package guest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/vmm/vmtest"
)

// TestResumeTrust: when a guest continues for another run, its programs trust the certificate of that run's host and no longer the first one.
// What a command has added to the bundle stays, and the files are right also if the next certificate is shorter, or there is none.
func TestResumeTrust(t *testing.T) {
	first, _, _ := authority(t)
	second, leaf, key := authority(t)
	added, _, _ := authority(t)
	s := &suspended{T: t, machine: vmtest.Restore(t, vmtest.Options{Trust: []byte(first + "# a longer file\n")})}
	s.next = func(cmd *channel.Command) { cmd.Env = append(cmd.Env, channel.TrustEnv()...) }
	p := s.start(obey, nil)
	s.machine.Bash(fmt.Sprintf(`cd /srv; printf %%s '%s' > leaf.pem; printf %%s '%s' > leaf.key; echo hello > hello; printf %%s '%s' >> %s`, leaf, key, added, channel.TrustBundle))
	s.start(`cd /srv; exec openssl s_server -quiet -accept 8443 -cert leaf.pem -key leaf.key -WWW >/dev/null 2>&1`, nil)
	s.say(p, `until (: < /dev/tcp/localhost/8443) 2>/dev/null; do sleep 0.1; done`)
	const ask = `curl -sS https://localhost:8443/hello`
	if got := s.say(p, ask); !strings.Contains(got, "certificate") {
		t.Errorf("the second certificate is trusted before: %q", got)
	}
	count := func() (bundle, java int) {
		said := s.say(p, `grep -c BEGIN `+channel.TrustBundle+`; od -An -tu1 -j11 -N1 `+channel.TrustJava)
		if _, err := fmt.Sscan(said, &bundle, &java); err != nil {
			t.Errorf("%q: %v", said, err)
		}
		return bundle, java
	}
	all, _ := count()
	for round, ca := range []string{second, second, ""} {
		s.park(func() {})
		s.wake(vmtest.Identity(vmtest.Options{Trust: []byte(ca)}))
		want, wanted := all, "hello\n"
		if ca == "" {
			want, wanted = all-1, ""
		}
		if bundle, java := count(); bundle != want || java != want {
			t.Errorf("round %d: %d certificates in the bundle, %d for Java, want %d", round, bundle, java, want)
		}
		if got := s.say(p, ask); got != wanted && (ca != "" || !strings.Contains(got, "certificate")) {
			t.Errorf("round %d: %q", round, got)
		}
		if got := s.say(p, "cat "+channel.TrustFile); got != ca {
			t.Errorf("round %d: the file is %q, want %q", round, got, ca)
		}
		bundle := s.say(p, "tail -n 60 "+channel.TrustBundle)
		if strings.Contains(bundle, first) || !strings.Contains(bundle, added) || strings.Contains(bundle, second) != (ca != "") {
			t.Errorf("round %d: the bundle ends with %q", round, bundle)
		}
	}
	// Files that a command has removed are made again, and others in their place are left alone.
	s.say(p, fmt.Sprintf("rm -r %s; mkdir /srv/dir; ln -s /srv/dir %s", channel.TrustDir, channel.TrustDir))
	s.park(func() {})
	s.wake(vmtest.Identity(vmtest.Options{Trust: []byte(second)}))
	if got := s.say(p, "cat /srv/dir/ca.pem"); got != second {
		t.Errorf("through a link: %q", got)
	}
	s.say(p, fmt.Sprintf("rm -r %s /srv/dir; mkfifo /srv/pipe; mkdir -p %s; ln -s /srv/pipe %s", channel.TrustDir, channel.TrustDir, channel.TrustFile))
	s.park(func() {})
	s.wake(vmtest.Identity(vmtest.Options{Trust: []byte(first)}))
	if bundle := s.say(p, "tail -n 60 "+channel.TrustBundle); !strings.Contains(bundle, first) || strings.Contains(bundle, second) {
		t.Errorf("beside a pipe: the bundle ends with %q", bundle)
	}
}

// TestResumeIdentity: a guest that continues as another machine has its host name and machine ID in all cells, before its processes run.
func TestResumeIdentity(t *testing.T) {
	s := &suspended{T: t, machine: vmtest.Restore(t, vmtest.Options{})}
	p := s.start(`echo "10.0.0.1 own" >> /etc/hosts; before=$(hostname); `+obey, nil)
	const look = `hostname; uname -n; cat /etc/hostname /proc/sys/kernel/hostname /etc/machine-id /etc/hosts`
	for _, name := range []string{"test", "a-much-longer-name", "a-much-longer-name", "b"} {
		id := vmtest.Identity(vmtest.Options{})
		id.Hostname, id.MachineID = name, strings.Repeat(name[:1], 32)
		if name == "test" {
			id.MachineID = strings.Repeat("0", 32)
		}
		s.park(func() {})
		s.wake(id)
		want := strings.Repeat(name+"\n", 4) + id.MachineID + "\n127.0.0.1\tlocalhost\n::1\tlocalhost\n127.0.1.1\t" + name + "\n10.0.0.1 own\n"
		if got := s.say(p, look); got != want {
			t.Errorf("a process that runs sees %q, want %q", got, want)
		}
		if got := s.machine.Bash(look); got != want {
			t.Errorf("another cell sees %q, want %q", got, want)
		}
		if got := s.say(p, "echo $before"); got != "test\n" {
			t.Errorf("%q", got)
		}
	}
}
