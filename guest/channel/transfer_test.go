package channel_test

import (
	"context"
	"testing"

	"github.com/custody-project/custody/guest/channel"
	"github.com/custody-project/custody/privsep"
	"github.com/custody-project/custody/workspace/transfer"
)

func init() { channel.Transports["privsep"] = remote }

// remote reaches directories through another end of a privsep connection.
func remote(t testing.TB, in *channel.SourceDir, out *channel.DestinationDir) (channel.Source, channel.Destination) {
	t.Helper()
	here, there, err := privsep.Pair()
	if err != nil {
		t.Fatal(err)
	}
	other, err := privsep.Socket(there)
	if err != nil {
		t.Fatal(err)
	}
	s := transfer.NewServer(in, out)
	server, client := privsep.New(here, s.Handlers()), privsep.New(other, nil)
	ended := make(chan error, 2)
	go func() { ended <- server.Run(context.Background()) }()
	go func() { ended <- client.Run(context.Background()) }()
	t.Cleanup(func() {
		client.Close()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	c := transfer.NewClient(client)
	return c, c
}
