package client_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"testing"

	"github.com/custody-project/custody/client"
)

// Example does what `custody run`, `exec`, `ps`, `logs -f` and `kill` do.
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
	server, err := box.Start(ctx, client.ProcessRequest{Shell: "echo ready; exec sleep 1000"})
	check(err)
	p, err := box.Start(ctx, client.ProcessRequest{Argv: []string{"sh", "-c", "cat; exit 7"}, Stdin: true})
	check(err)
	check(p.Write(ctx, []byte("hello\n")))
	check(p.CloseInput(ctx))
	_, err = io.Copy(os.Stdout, p.Output(ctx, client.Stdout))
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
