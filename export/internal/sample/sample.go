// Package sample has an event of every kind, operation and state, for the tests of the formats.
package sample

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/export"
	"github.com/custody-project/custody/store"
)

// Run is the run of all events.
const Run = "r-01m7xjv1a823je79x1yt6ytbn4"

// Time is when the first of them happened.
func Time() time.Time { return time.Date(2026, 11, 20, 22, 57, 7, 722398033, time.UTC) }

// Sample is an event with a name.
type Sample struct {
	Name string // kind, then what distinguishes it from others of its kind
	export.Event
}

// payloads are records without an envelope, one per line: name, observer, payload.
const payloads = `
run/start host {"kind":"run","lifecycle":{"phase":"start","tenant":"acme","project":"shop","template":"base","template_digest":"sha256-80cceae6","project_digest":"sha256-3f7c1e90","project_version":3,"project_author":"ann","narrowing_digest":"sha256-5be8d201","parent":{"op":"fork","run":"r-01k9x2","seq":17,"root":"9be7a0fe","manifest":"3f7c1e90"},"policy_digest":"sha256-9be7a0fe","ruleset_digest":"d7887628","tier":"qemu-tcg","tier_note":"software emulation","mode":"strict","version":"1.0.0","host":"vm-host-1","steps":["setup","agent"],"secrets":["git=vault"]}}
run/done host {"kind":"run","lifecycle":{"phase":"end","exit_code":0,"status":"done","duration_ns":4000000000}}
run/interrupted host {"kind":"run","lifecycle":{"phase":"end","status":"interrupted","reason":"custody died; closed at its next start"}}
step/start host {"kind":"step","step":"agent","lifecycle":{"phase":"start","name":"agent","argv":["/bin/sh","-c","exit 3"]}}
step/env host {"kind":"step","step":"agent","lifecycle":{"phase":"start","name":"agent","argv":["make"],"env":["CI=true","MESSAGE=it's done"]}}
step/exit3 host {"kind":"step","step":"agent","lifecycle":{"phase":"end","name":"agent","exit_code":3,"status":"done","duration_ns":239385794}}
step/timeout host {"kind":"step","step":"agent","lifecycle":{"phase":"end","name":"agent","status":"timeout","reason":"limits.time"}}
step/cancelled host {"kind":"step","step":"agent","lifecycle":{"phase":"end","name":"agent","exit_code":143,"status":"cancelled"}}
step/failed host {"kind":"step","step":"agent","lifecycle":{"phase":"end","name":"agent","status":"failed","reason":"no such program"}}
exec/plain guest {"kind":"exec","step":"agent","exec":{"proc":"897ef210a4a8969bd99c8290de82b14e","parent":"5987210b927949e7fbf9194515cb6308","pid":116,"ppid":115,"exe":"/usr/bin/git","argv":["git","commit","-m","it's done"],"cwd":"/workspace","uid":1000}}
exec/first guest {"kind":"exec","step":"agent","exec":{"proc":"5987210b927949e7fbf9194515cb6308","pid":115,"ppid":0,"exe":"/bin/sh","argv":["sh"],"cwd":"/","uid":0}}
exec/truncated guest {"kind":"exec","step":"agent","exec":{"proc":"86ccec29abfb7c42af3a96b08bb3f1ba","parent":"5987210b927949e7fbf9194515cb6308","pid":117,"ppid":115,"exe":"/bin/true","argv":["true","1"],"cwd":"/workspace","uid":0,"truncated":true,"argv_bytes":38903,"argv_sha256":"b882eec688d555b81c1c64a7b4b143a7dd337cef17d6daee8a49297bfa709eb1","llm":"m1","tool_call":"call_1"}}
exec/bytes guest {"kind":"exec","step":"agent","exec":{"proc":"11ccec29abfb7c42af3a96b08bb3f1ba","pid":118,"ppid":115,"exe":{"base64":"L3RtcC//Cmv+"},"argv":["x\u0000y","a\nCEF:0|b\u2028c\u001b[2J",{"base64":"gIGC"},"\u202e=|\\"],"cwd":"/tmp","uid":0}}
exit/zero guest {"kind":"exit","step":"agent","exit":{"proc":"897ef210a4a8969bd99c8290de82b14e","pid":116,"code":0,"duration_ns":560864850}}
exit/signal guest {"kind":"exit","step":"agent","exit":{"proc":"897ef210a4a8969bd99c8290de82b14e","pid":116,"code":137,"signal":9,"duration_ns":560864850}}
exit/synthetic host {"kind":"exit","step":"agent","exit":{"proc":"5cdd6996210c7f27c764df749cff96d0","pid":117,"code":-1,"duration_ns":3725725361,"synthetic":true}}
file/create guest {"kind":"file","step":"agent","file":{"proc":"fd4a3c5616d5a647b4b5381252ca62eb","pid":119,"parent":"a6122c21845f65e993fec62290c2460c","op":"create","path":"/workspace/child.txt","size":0}}
file/write guest {"kind":"file","step":"agent","file":{"proc":"897ef210a4a8969bd99c8290de82b14e","pid":116,"op":"write","path":"/workspace/n.txt","size":588895,"sha256":"b2bc7d3f8b652d2ec96865b68ad8f80e22cca174abe1aed7889e242a747d590f"}}
file/link guest {"kind":"file","step":"agent","file":{"proc":"897ef210a4a8969bd99c8290de82b14e","pid":116,"op":"create","path":"/workspace/x","source":"/etc/passwd","device":"0:26","inode":"4611686018427387947","size":1024}}
file/chroot guest {"kind":"file","step":"agent","file":{"proc":"897ef210a4a8969bd99c8290de82b14e","pid":116,"op":"chroot","path":"/workspace/jail","device":"0:26","inode":"2052","size":4096}}
file/read guest {"kind":"file","step":"agent","file":{"proc":"897ef210a4a8969bd99c8290de82b14e","pid":116,"op":"read","path":"/usr/lib/libc.so.6","size":9588895,"unhashed":"changed after it was closed"}}
file/secret guest {"kind":"file","step":"agent","file":{"proc":"897ef210a4a8969bd99c8290de82b14e","pid":116,"op":"read","path":"/run/secrets/git/token","device":"0:41","inode":"3","size":0,"secrets":["git"]}}
file/rename guest {"kind":"file","step":"agent","file":{"proc":"897ef210a4a8969bd99c8290de82b14e","pid":116,"op":"rename","path":"/workspace/a","to":"/workspace/b","size":4}}
file/api host {"kind":"file","file":{"op":"read","path":"/workspace/n.txt","size":100,"sha256":"b2bc7d3f8b652d2ec96865b68ad8f80e22cca174abe1aed7889e242a747d590f","caller":"agents","offset":10}}
file/failed host {"kind":"file","file":{"op":"list","path":"/workspace/none","size":0,"caller":"agents","error":"\"/workspace/none\": there is no such file"}}
file/delete guest {"kind":"file","step":"agent","file":{"op":"delete","path":"relative","size":0}}
inbound/open host {"kind":"inbound","inbound":{"id":"c1","op":"open","port":8080,"who":"token:ci","via":"tunnel"}}
inbound/close host {"kind":"inbound","inbound":{"id":"c1","op":"close","port":8080,"who":"token:ci","via":"tunnel","bytes_in":723,"bytes_out":1436,"reason":"nothing was sent or received for too long","duration_ns":457547669}}
inbound/refuse host {"kind":"inbound","inbound":{"id":"c2","op":"refuse","port":8081,"who":"token:ci","via":"tunnel","reason":"nothing listens on the port"}}
flow/attempt guest {"kind":"flow","step":"agent","flow":{"proc":"897ef210a4a8969bd99c8290de82b14e","pid":116,"state":"attempt","proto":"tcp","src_ip":"198.18.0.2","src_port":41554,"dst_ip":"198.18.1.0","dst_port":443,"errno":115}}
flow/connected guest {"kind":"flow","step":"agent","flow":{"pid":116,"state":"attempt","proto":"udp","dst_ip":"2600:dead:66::66","dst_port":53}}
flow/failed guest {"kind":"flow","step":"agent","flow":{"pid":116,"parent":"5987210b927949e7fbf9194515cb6308","state":"attempt","proto":"tcp","dst_ip":"10.0.0.1","dst_port":22,"errno":101}}
flow/open host {"kind":"flow","step":"agent","flow":{"id":"f1","proc":"897ef210a4a8969bd99c8290de82b14e","pid":116,"state":"open","proto":"tcp","src_ip":"198.18.0.2","src_port":37118,"dst_ip":"198.18.1.0","dst_port":443,"name":"allowed.site.example","verdict":"allow","rule":"allowed.site.example tcp/443","dns_seq":8,"generation":1,"peer":"[2600:dead:10::10]:443"}}
flow/close host {"kind":"flow","step":"agent","flow":{"id":"f1","state":"close","proto":"tcp","src_ip":"198.18.0.2","src_port":37118,"dst_ip":"198.18.1.0","dst_port":443,"name":"allowed.site.example","verdict":"allow","rule":"allowed.site.example tcp/443","dns_seq":8,"generation":1,"peer":"93.184.10.10:443","bytes_out":1436,"bytes_in":2333,"packets_out":10,"packets_in":9,"duration_ns":457547669}}
flow/deny host {"kind":"flow","step":"agent","flow":{"state":"deny","proto":"tcp","src_ip":"fdc5:7a1c:19d2::2","src_port":37548,"dst_ip":"2600:dead:66::66","dst_port":443,"verdict":"deny","rule":"default","reason":"no rule names this destination","generation":1,"count":17}}
flow/sum host {"kind":"flow","flow":{"state":"deny","proto":"icmp6","verdict":"deny","rule":"default","reason":"no rule names this destination","generation":1,"count":4711}}
flow/sni host {"kind":"flow","step":"agent","flow":{"state":"deny","proto":"tcp","src_ip":"198.18.0.2","src_port":37134,"dst_ip":"198.18.1.0","dst_port":443,"name":"allowed.site.example","verdict":"deny","rule":"allowed.site.example tcp/443","reason":"the client asks for another server (SNI) than the destination's name","dns_seq":47,"generation":2,"sni":"fronted.site.example","bytes_out":723,"bytes_in":140,"packets_out":3,"packets_in":2}}
flow/revoke host {"kind":"flow","step":"agent","flow":{"id":"f1","state":"revoke","proto":"tcp","src_ip":"198.18.0.2","src_port":37952,"dst_ip":"198.18.1.0","dst_port":443,"name":"allowed.site.example","verdict":"deny","rule":"default","reason":"no rule names this destination","generation":2,"bytes_out":45451,"bytes_in":26333677,"packets_out":676,"packets_in":18041,"duration_ns":4096978249}}
dns/allow host {"kind":"dns","step":"agent","dns":{"name":"allowed.site.example","type":"A","proto":"udp","rcode":"NOERROR","answers":["198.18.1.0"],"ttl":60,"verdict":"allow","rule":"allowed.site.example tcp/443","synthetic":true,"generation":1}}
dns/upstream host {"kind":"dns","step":"agent","dns":{"name":"direct.site.example","type":"A","rcode":"NOERROR","answers":["93.184.10.20","93.184.10.21"],"chain":["cdn.example"],"ttl":60,"verdict":"allow","rule":"direct.site.example tcp/7000 direct","upstream":"udp://93.184.0.53:53","dropped":["10.0.0.1"],"cached":true,"latency_ns":512800,"generation":1}}
dns/deny host {"kind":"dns","step":"agent","dns":{"name":"www.evil.example","type":"A","proto":"tcp","rcode":"REFUSED","verdict":"deny","rule":"default","reason":"no rule names this destination","generation":1}}
dns/servfail host {"kind":"dns","step":"agent","dns":{"name":"a\\032b.example","type":"HTTPS","proto":"udp","rcode":"SERVFAIL","verdict":"allow","rule":"a tcp/443","reason":"no address"}}
dns/badvers host {"kind":"dns","dns":{"name":".","type":"TXT","proto":"udp","rcode":"BADVERS","ttl":3,"verdict":"deny","rule":"default"}}
dns/odd host {"kind":"dns","dns":{"name":".","type":"TYPE65280","proto":"udp","rcode":"RCODE4000","verdict":"deny","rule":"default"}}
http/get host {"kind":"http","step":"agent","http":{"flow":"f2","proto":"HTTP/2.0","method":"GET","host":"api.site.example","path":"/v1/x?q=1&b=2","status":200,"bytes_in":55,"verdict":"allow","rule":"api.site.example tcp/443 http","generation":1,"duration_ns":54507551,"credential":"model","redacted":2,"llm":"m1"}}
http/connect host {"kind":"http","http":{"method":"CONNECT","host":"h","path":"","status":400,"verdict":"allow","rule":"r"}}
http/delete host {"kind":"http","step":"agent","http":{"flow":"f3","proto":"HTTP/2.0","method":"DELETE","host":"api.site.example","path":"/v1/x","status":403,"verdict":"deny","rule":"api.site.example tcp/443","reason":"the rule does not allow this method","generation":1}}
http/head host {"kind":"http","http":{"flow":"f4","proto":"HTTP/1.1","method":"HEAD","host":"h","path":"/","status":204,"verdict":"allow","rule":"r"}}
http/options host {"kind":"http","http":{"flow":"f4","proto":"HTTP/1.1","method":"OPTIONS","host":"h","path":"*","status":204,"verdict":"allow","rule":"r"}}
http/post host {"kind":"http","http":{"flow":"f4","proto":"HTTP/1.1","method":"POST","host":"h","path":"/","bytes_out":77,"verdict":"allow","rule":"r"}}
http/put host {"kind":"http","http":{"flow":"f4","proto":"HTTP/1.1","method":"PUT","host":"h","path":"/","status":201,"verdict":"allow","rule":"r"}}
http/trace host {"kind":"http","http":{"flow":"f4","proto":"HTTP/1.1","method":"TRACE","host":"h","path":"/","status":405,"verdict":"allow","rule":"r"}}
http/patch host {"kind":"http","http":{"flow":"f4","proto":"HTTP/1.1","method":"PATCH","host":"h","path":"/","status":200,"verdict":"allow","rule":"r"}}
http/propfind host {"kind":"http","http":{"flow":"f4","proto":"HTTP/1.1","method":"PROPFIND","host":"h","path":"/","status":207,"verdict":"allow","rule":"r"}}
llm/call host {"kind":"llm","step":"agent","llm":{"id":"m1","flow":"f1","provider":"anthropic","api":"messages","host":"llm.site.example","model":"claude-sonnet-4-5","input_tokens":31,"output_tokens":8,"cache_read_tokens":3,"cache_write_tokens":4,"reasoning_tokens":5,"tools":["bash"],"tool_calls":[{"id":"call_1_1","name":"bash","sha256":"b04dc867","arguments":"{\"command\":\"ls -l\"}"},{"name":"edit","sha256":"c04dc867","arguments":"{\"a","truncated":true}],"stop_reason":"tool_use","status":200,"stream":true,"retry":1,"request_sha256":"22f204a4","duration_ns":12999189,"first_token_ns":12698145,"spent":39,"budget":100000}}
llm/error host {"kind":"llm","step":"agent","llm":{"id":"m2","provider":"openai","api":"chat","host":"llm.site.example","input_tokens":0,"output_tokens":0,"status":429,"error":"rate limit","incomplete":"the answer broke off","duration_ns":1}}
policy/first host {"kind":"policy","step":"agent","policy":{"generation":1,"digest":"sha256-9be7a0fe","rules":["api.site.example tcp/443 http methods=[\"GET\"]"]}}
policy/change host {"kind":"policy","policy":{"generation":2,"digest":"sha256-61032564","previous":"sha256-9be7a0fe"}}
probe/blocked host {"kind":"probe","probe":{"name":"dns/other-resolver-udp-v6","family":"ipv6","blocked":true,"recorded":true,"attacked":"r-01m7xwbxhw1c60mxprqjzgrren","evidence":247,"detail":"flow deny: no rule names this destination"}}
probe/control host {"kind":"probe","probe":{"name":"control/https","blocked":false,"recorded":true,"attacked":"r-01m7xwbxhw1c60mxprqjzgrren","evidence":14,"detail":"flow open"}}
probe/escaped host {"kind":"probe","probe":{"name":"raw/socket","blocked":false,"recorded":false,"attacked":"r-01m7xwbxhw1c60mxprqjzgrren"}}
output/stdout host {"kind":"output","step":"agent","output":{"stream":"stdout","offset":0,"text":"[Errno 101] Network is unreachable\r\n\u001b[0m"}}
output/bytes host {"kind":"output","step":"agent","output":{"stream":"tty","offset":77,"text":{"base64":"Yv9i/g=="}}}
vm/create host {"kind":"vm","vm":{"op":"create","driver":"qemu","tier":"qemu-tcg","duration_ns":111179733}}
vm/restore host {"kind":"vm","vm":{"op":"restore","driver":"qemu","tier":"qemu-tcg","duration_ns":111179733}}
vm/boot host {"kind":"vm","vm":{"op":"boot","driver":"qemu","tier":"qemu-kvm"}}
vm/freeze host {"kind":"vm","vm":{"op":"freeze","reason":"the record cannot be written"}}
vm/thaw host {"kind":"vm","vm":{"op":"thaw","reason":"the record cannot be written","duration_ns":3402034568}}
vm/pause host {"kind":"vm","vm":{"op":"pause"}}
vm/snapshot host {"kind":"vm","vm":{"op":"snapshot"}}
vm/silent host {"kind":"vm","vm":{"op":"silent","reason":"the guest gives no sign of life","duration_ns":30000000000}}
vm/destroy host {"kind":"vm","vm":{"op":"destroy","driver":"qemu","duration_ns":6023207}}
secret/mint host {"kind":"secret","step":"agent","secret":{"name":"model","op":"mint","broker":"local","via":"header,env","tag":"e33a11bb","accessor_sha256":"79a67347","ttl_ns":59998791886,"expires":"2026-11-21T05:15:06.656132614Z","leases":2}}
secret/deliver host {"kind":"secret","step":"agent","secret":{"name":"model","op":"deliver","via":"env"}}
secret/use host {"kind":"secret","step":"agent","secret":{"name":"model","op":"use","via":"header","flow":"f1","host":"llm.site.example"}}
secret/renew host {"kind":"secret","step":"agent","secret":{"op":"renew","broker":"vault","ttl_ns":60000000000}}
secret/revoke host {"kind":"secret","step":"agent","secret":{"name":"model","op":"revoke","broker":"local","accessor_sha256":"79a67347","reason":"the step has ended"}}
secret/expire host {"kind":"secret","step":"agent","secret":{"name":"model","op":"expire","reason":"the broker is gone"}}
secret/refuse host {"kind":"secret","step":"agent","secret":{"name":"other","op":"refuse","reason":"the step may not have it"}}
gap/output host {"kind":"gap","gap":{"stage":"output","what":"output","count":0,"bytes":9028,"cause":"record.output allows 4096 bytes"}}
gap/wal host {"kind":"gap","gap":{"stage":"wal","first":138,"last":1006,"count":869,"cause":"no space left on device"}}
gap/ring guest {"kind":"gap","gap":{"stage":"kernel_ring","what":"exec","count":12,"cause":"full"}}
finding/tunnel host {"kind":"finding","step":"agent","finding":{"rule":"dns-tunnel","detail":"a name below wild.site.example has 60 random characters in a row","evidence":8}}
finding/revoke host {"kind":"finding","step":"agent","finding":{"rule":"secret-in-output","detail":"the value of model was printed","secret":"model","proc":"897ef210a4a8969bd99c8290de82b14e","evidence":31,"action":"revoke"}}
finding/freeze host {"kind":"finding","finding":{"rule":"token-misuse","detail":"from elsewhere","secret":"model","action":"freeze"}}
finding/end host {"kind":"finding","finding":{"rule":"token-misuse","detail":"from elsewhere","secret":"model","action":"end"}}
access/view host {"kind":"access","access":{"who":"ann","via":"token","role":"viewer","tenant":"acme","action":"view","route":"GET /api/v1/runs/{run}/state","about":"r-01m7xjv1a823je79x1yt6ytbn4","query":"at=%2B1.5s","remote":"192.0.2.7","verdict":"allow"}}
access/follow host {"kind":"access","access":{"who":"ann","via":"oidc","role":"viewer","tenant":"acme","action":"follow","route":"GET /api/v1/runs/{run}/live","about":"last","remote":"[2001:db8::7]:51234","verdict":"allow"}}
access/search host {"kind":"access","access":{"who":"bob","via":"token","role":"auditor","tenant":"acme","action":"search","route":"GET /api/v1/search","query":{"base64":"cT3/AQ=="},"remote":"192.0.2.8","verdict":"allow"}}
access/verify host {"kind":"access","access":{"who":"bob","via":"token","role":"auditor","action":"verify","route":"POST /api/v1/runs/{run}/verify","about":"r-01m7xjv1a823je79x1yt6ytbn4","remote":"192.0.2.8","verdict":"allow"}}
access/report host {"kind":"access","access":{"who":"bob","via":"token","role":"auditor","tenant":"acme","action":"report","route":"GET /api/v1/reports","query":"framework=soc2","remote":"192.0.2.8","verdict":"allow"}}
access/export host {"kind":"access","access":{"who":"bob","via":"token","role":"auditor","tenant":"acme","action":"export","route":"GET /api/v1/runs/{run}/bundle","about":"r-01m7xjv1a823je79x1yt6ytbn4","remote":"192.0.2.8","verdict":"allow"}}
access/export-refused host {"kind":"access","access":{"who":"ann","via":"token","role":"viewer","tenant":"acme","action":"export","route":"GET /api/v1/runs/{run}/bundle","about":"r-01m7xjv1a823je79x1yt6ytbn4","remote":"192.0.2.7","verdict":"deny","reason":"the role viewer may not","status":403}}
access/login host {"kind":"access","access":{"who":"ann","via":"once","role":"admin","action":"login","route":"POST /api/v1/session","remote":"127.0.0.1","verdict":"allow"}}
access/nobody host {"kind":"access","access":{"action":"login","route":"POST /api/v1/session","remote":"203.0.113.9","verdict":"deny","reason":"the token is not known","status":401,"count":17}}
access/logout host {"kind":"access","access":{"who":"ann","via":"once","role":"admin","action":"logout","route":"DELETE /api/v1/session","remote":"127.0.0.1","verdict":"allow"}}
access/other-tenant host {"kind":"access","access":{"who":"ann","via":"token","role":"viewer","tenant":"globex","action":"view","route":"GET /api/v1/runs","remote":"@","verdict":"deny","reason":"no grant for this tenant","status":403}}
access/manage host {"kind":"access","access":{"who":"root","via":"token","role":"admin","tenant":"acme","action":"manage","route":"GET /api/v1/tokens","remote":"127.0.0.1","verdict":"allow"}}
access/grant host {"kind":"access","access":{"who":"root","via":"token","role":"admin","tenant":"acme","action":"manage","route":"POST /api/v1/tokens","remote":"127.0.0.1","verdict":"allow"}}
access/dropped host {"kind":"access","access":{"who":"root","via":"token","role":"admin","tenant":"acme","action":"manage","route":"DELETE /api/v1/tokens","remote":"127.0.0.1","verdict":"allow"}}
access/project host {"kind":"access","access":{"who":"ann","via":"cli","tenant":"acme","action":"manage","route":"custody project apply","verdict":"allow","project":"shop","project_version":3,"project_digest":"sha256-3f7c1e90"}}
access/odd host {"kind":"access","access":{"action":"dream","route":"","verdict":"allow"}}
access/note host {"kind":"access","access":{"who":"bob","via":"token","role":"auditor","tenant":"acme","action":"note","route":"POST /api/v1/runs/{run}/notes","about":"r-01m7xjv1a823je79x1yt6ytbn4","remote":"192.0.2.8","verdict":"allow"}}
note/add host {"kind":"note","note":{"who":"bob","via":"token","role":"auditor","tenant":"acme","about":"r-01m7xjv1a823je79x1yt6ytbn4","seq":17,"leaf":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","text":"asked the team: not theirs","tags":["exfil","case-7"],"remote":"192.0.2.8"}}
note/withdraw host {"kind":"note","note":{"who":"bob","via":"token","role":"auditor","tenant":"acme","about":"r-01m7xjv1a823je79x1yt6ytbn4","text":"it was theirs","withdraws":"a-01m7xjv1a823je79x1yt6ytbn4:9","remote":"2001:db8::7"}}
note/cli host {"kind":"note","note":{"who":"ann","via":"cli","about":"r-01m7xjv1a823je79x1yt6ytbn4","text":"line one\n|=\\ \u001b[31mline two\u202e","tags":["x"]}}
copy/list host {"kind":"copy","copy":{"direction":"out","op":"list","salt":"00112233445566778899aabbccddeeff","files":[{"path":".envrc","as":".envrc.from-sandbox","mode":"0644","size":12,"sha256":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"},{"path":"latest","mode":"0777","size":0,"link":"build/app"}]}}
copy/end host {"kind":"copy","copy":{"direction":"out","op":"end","dir":"/home/dev/shop","count":2,"bytes":12,"root":"845e9bed14696e588d5818de7358dadf2c9f818c7d62ce6c034d4ffc1486831f"}}
copy/failed host {"kind":"copy","copy":{"direction":"in","op":"end","dir":"/home/dev/shop","root":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","reason":"\"data\" shrank from 10 to 4 bytes while it was copied"}}
`

// All returns the samples, in an order that a run could have.
func All() []Sample {
	var all []Sample
	var start *audit.Lifecycle
	execs := map[string]*audit.Exec{}
	for i, line := range strings.Split(strings.TrimSpace(payloads), "\n") {
		name, rest, _ := strings.Cut(line, " ")
		observer, payload, _ := strings.Cut(rest, " ")
		body := envelope(i, observer, payload)
		e := export.Event{Tenant: "acme", Host: "host-1+0a1b2c3d", Body: body}
		if err := json.Unmarshal(body, &e.Record); err != nil {
			panic(fmt.Sprintf("%s: %v", name, err))
		}
		if e.Kind == audit.KindRun && start == nil {
			start = e.Lifecycle
		}
		e.Start = start
		link(&e, execs)
		all = append(all, Sample{name, e})
	}
	n := len(all)
	erased := export.Event{Tenant: "acme", Host: "host-1+0a1b2c3d", Erased: true, Start: start}
	erased.Run, erased.Seq, erased.Time = Run, uint64(n+1), Time()
	return append(all, Sample{"erased/record", erased})
}

// Marked returns all samples, each with a mark that is Wrong.
func Marked() []Sample {
	all := All()
	for i := range all {
		all[i].Name += "/marked"
		all[i].Mark = &store.Mark{State: store.Fails, Text: "it is not the record that was signed"}
	}
	return all
}

func envelope(i int, observer, payload string) []byte {
	guest := ""
	if observer == "guest" {
		guest = `"guest_time":{"time":"2026-11-20T22:57:07.625850987Z","offset_ns":39734027},`
	}
	at := Time().Add(time.Duration(i) * time.Second).Format(time.RFC3339Nano)
	return fmt.Appendf(nil, `{"v":1,"run":%q,"seq":%d,"time":%q,"observer":%q,%s%s`, Run, i+1, at, observer, guest, payload[1:])
}

// link sets the process that the exporter would derive for an event.
func link(e *export.Event, execs map[string]*audit.Exec) {
	proc := ""
	switch {
	case e.Record.Exec != nil:
		proc = e.Record.Exec.Proc
		execs[proc] = e.Record.Exec
	case e.Exit != nil:
		proc = e.Exit.Proc
	case e.File != nil:
		proc = e.File.Proc
	case e.Flow != nil:
		proc = e.Flow.Proc
	case e.Finding != nil:
		proc = e.Finding.Proc
	}
	if e.Exec = execs[proc]; e.Exec != nil {
		e.Parent = execs[e.Exec.Parent]
	}
}

// Named returns one of the samples.
func Named(name string) export.Event {
	for _, s := range All() {
		if s.Name == name {
			return s.Event
		}
	}
	panic("there is no sample " + name)
}
