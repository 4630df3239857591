package client_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"testing"

	"github.com/custody-project/custody/client"
)

// Example does what `custody run`, `cp`, `port`, `exec -it`, `ps`, `logs -f` and `kill` do.
func Example() {
	ctx := context.Background()
	c, err := client.New(os.Getenv("CUSTODY_URL"), os.Getenv("CUSTODY_TOKEN"))
	check(err)
	roots, err := os.ReadFile(os.Getenv("CUSTODY_CA_FILE"))
	check(err)
	check(c.TrustOnly(roots))
	box, err := c.Create(ctx, client.SandboxRequest{Metadata: map[string]string{"task": "example"}})
	check(err)
	defer box.Destroy(ctx)
	check(box.Files("").WriteFile(ctx, "/workspace/page", []byte("hello\n"), 0o644))
	server, err := box.Start(ctx, client.ProcessRequest{Argv: []string{"python3", "-u", "-m", "http.server", "8080"}})
	check(err)
	_, err = bufio.NewReader(server.Output(ctx, client.Stdout)).ReadString('\n') // it listens
	check(err)
	conn, err := box.Dial(ctx, 8080)
	check(err)
	defer conn.Close()
	fmt.Fprint(conn, "GET /page HTTP/1.0\r\n\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	check(err)
	_, err = io.Copy(os.Stdout, answer.Body)
	check(err)
	p, err := box.Start(ctx, client.ProcessRequest{Shell: "read line; tty; exit 7", Stdin: true, Terminal: &client.TerminalState{Rows: 24, Cols: 80}})
	check(err)
	check(p.Write(ctx, []byte("any\n")))
	_, err = io.Copy(os.Stdout, p.Output(ctx, client.TTY))
	check(err)
	list, err := box.Processes(ctx)
	check(err)
	fmt.Println(len(list), "processes, the second ended with", *list[1].ExitCode)
	check(server.Signal(ctx, "SIGTERM"))
	end, err := server.Wait(ctx)
	check(err)
	fmt.Println("the first got", end.Signal)
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

// TestExample runs the example.
func TestExample(t *testing.T) {
	if os.Getenv("CUSTODY_URL") == "" {
		t.Skip("it needs a service: TestElsewhere of cmd/custody runs it")
	}
	Example()
}
