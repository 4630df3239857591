package ship

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/custody-project/custody/internal/regular"
)

// varz is the used part of a server's monitoring endpoint /varz.
type varz struct {
	ID        string `json:"server_id"`
	Name      string `json:"server_name"`
	JetStream struct {
		Config *struct {
			SyncInterval time.Duration `json:"sync_interval"` // nanoseconds
			SyncAlways   bool          `json:"sync_always"`
		} `json:"config"`
		Meta struct {
			Size int `json:"cluster_size"`
		} `json:"meta"`
	} `json:"jetstream"`
}

const (
	monitorTimeout = 5 * time.Second
	maxVarz        = 1 << 20
)

// checkSync warns of servers that acknowledge a segment before it is on disk, and of those
// that it cannot check. It works in the background until close.
func (l *link) checkSync(ctx context.Context) {
	if l.config.Monitor == "" {
		l.config.warn("it is not checked that the NATS servers write to disk before they acknowledge (sync_interval: always): set their monitoring endpoints")
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), monitorTimeout)
	l.stopHelpers = cancel
	l.helpers.Go(func() {
		defer cancel()
		if warning := l.config.lookAtSync(ctx, l.conn.ConnectedServerId()); warning != "" && !l.closing.Load() {
			l.config.warn("%s", warning)
		}
	})
}

// lookAtSync returns the warnings, "" if all servers are set correctly.
func (c Config) lookAtSync(ctx context.Context, connected string) string {
	client, err := c.monitorClient()
	if err != nil {
		return fmt.Sprintf("sync_interval of the NATS servers cannot be checked: %v", err)
	}
	defer client.CloseIdleConnections()
	var found []string
	seen := map[string]bool{}
	size := 0
	for _, endpoint := range strings.Split(c.Monitor, ",") {
		v, err := readVarz(ctx, client, strings.TrimSpace(endpoint))
		switch {
		case err != nil:
			found = append(found, fmt.Sprintf("sync_interval of a NATS server cannot be checked: %v", err))
			continue
		case v.JetStream.Config == nil:
			continue // a server without JetStream stores nothing
		case !v.JetStream.Config.SyncAlways:
			found = append(found, fmt.Sprintf("NATS server %s writes to disk every %v only: a power failure can lose segments that it acknowledged: set jetstream { sync_interval: always }",
				v.Name, v.JetStream.Config.SyncInterval))
		}
		seen[v.ID] = true
		size = max(size, v.JetStream.Meta.Size)
	}
	switch {
	case len(found) > 0:
	case !seen[connected] && size <= 1:
		found = append(found, "sync_interval was checked, but not of the NATS server that took this connection")
	case len(seen) < size:
		found = append(found, fmt.Sprintf("sync_interval was checked at %d of %d NATS servers: set the monitoring endpoints of all", len(seen), size))
	}
	return strings.Join(found, "; ")
}

func (c Config) monitorClient() (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pool, err := readPool(c.CA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = pool
	}
	if c.Cert != "" {
		pair, err := regular.KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}}, nil
}

func readVarz(ctx context.Context, client *http.Client, endpoint string) (v varz, err error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return v, fmt.Errorf("%.100q is not a URL of a monitoring endpoint, such as http://nats.example.com:8222", endpoint)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.JoinPath("varz").String(), nil)
	if err != nil {
		return v, err
	}
	response, err := client.Do(request)
	if err != nil {
		return v, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return v, fmt.Errorf("%s answers %s", u.Redacted(), response.Status)
	}
	err = json.NewDecoder(io.LimitReader(response.Body, maxVarz)).Decode(&v)
	if err == nil && v.ID == "" {
		err = fmt.Errorf("%s is not the monitoring endpoint of a NATS server", u.Redacted())
	}
	return v, err
}
