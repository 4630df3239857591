package clickhousetest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

const oldConfig = `<yandex>
  <logger><level>error</level><console>1</console></logger>
  <tcp_port>%d</tcp_port><listen_host>127.0.0.1</listen_host>
  <path>%[2]s/data/</path><tmp_path>%[2]s/tmp/</tmp_path>
  <users_config>%[2]s/users.xml</users_config>
  <default_profile>default</default_profile><default_database>default</default_database>
  <mark_cache_size>67108864</mark_cache_size>
</yandex>
`

const oldUsers = `<yandex>
  <profiles><default/></profiles>
  <users><default><password></password><networks><ip>127.0.0.1</ip></networks><profile>default</profile><quota>default</quota></default></users>
  <quotas><default/></quotas>
</yandex>
`

// StartOld starts Debian's clickhouse-server 18.16 with separate directories, and returns the
// DSN of its native protocol. The program is $CUSTODY_TEST_CLICKHOUSE_OLD, which hack/clickhouse-old prints.
func StartOld(t testing.TB) string {
	t.Helper()
	program := os.Getenv("CUSTODY_TEST_CLICKHOUSE_OLD")
	if program == "" {
		t.Fatal("CUSTODY_TEST_CLICKHOUSE_OLD is not set: it is what hack/clickhouse-old prints")
	}
	dir, port := t.TempDir(), freePort(t)
	config := filepath.Join(dir, "config.xml")
	for name, text := range map[string]string{config: fmt.Sprintf(oldConfig, port, dir), filepath.Join(dir, "users.xml"): oldUsers} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(program, "--config-file="+config)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { // ends with the server
		cmd.Wait() //nolint:errcheck // it is killed
		close(ended)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-ended
	})
	address := fmt.Sprintf("127.0.0.1:%d", port)
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(50 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return "clickhouse://" + address + "/default"
		}
		select {
		case <-ended:
			said, _ := os.ReadFile(log.Name())
			t.Fatalf("the old ClickHouse server ended: %s", said)
		default:
		}
	}
	t.Fatal("the old ClickHouse server did not start in a minute")
	return ""
}

func freePort(t testing.TB) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}
