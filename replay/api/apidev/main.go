// Command apidev serves a home's runs to whoever asks on loopback, as an admin of what has no
// tenant. It is for work on the page.
package main

import (
	"context"
	"flag"
	"iter"
	"log"
	"log/slog"
	"net/http"
	"os"

	"github.com/custody-project/custody/audit/store"
	"github.com/custody-project/custody/home"
	"github.com/custody-project/custody/replay/api"
)

type gate struct{}

func (gate) Guard(_ string, _ api.Rule, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(api.With(r.Context(), "dev", r.URL.Query().Get("tenant"))))
	})
}

// untenanted bridges stores that do not know NoTenant yet.
type untenanted struct{ home.Reader }

func (u untenanted) Runs(ctx context.Context, f store.Filter) ([]store.Run, error) {
	if f.Tenant == store.NoTenant {
		f.Tenant = ""
	}
	return u.Reader.Runs(ctx, f)
}

func (u untenanted) Run(ctx context.Context, tenant, name string) (store.Run, error) {
	if tenant == store.NoTenant {
		tenant = ""
	}
	return u.Reader.Run(ctx, tenant, name)
}

func (u untenanted) Search(ctx context.Context, s store.Search) iter.Seq2[store.Row, error] {
	if s.Tenant == store.NoTenant {
		s.Tenant = ""
	}
	return u.Reader.(interface {
		Search(ctx context.Context, s store.Search) iter.Seq2[store.Row, error]
	}).Search(ctx, s)
}

func main() {
	dir := flag.String("home", os.Getenv("CUSTODY_HOME"), "the home")
	addr := flag.String("addr", "127.0.0.1:8390", "where to listen")
	assets := flag.String("assets", "", "a directory with the page")
	flag.Parse()
	h, err := home.Open(*dir)
	if err != nil {
		log.Fatal(err)
	}
	o := api.Options{
		Open: func(ctx context.Context) (api.Source, error) {
			r, err := h.Reader(ctx)
			return untenanted{r}, err
		},
		Gate: gate{},
		Log:  slog.Default(),
	}
	if *assets != "" {
		o.Assets = http.FileServer(http.Dir(*assets))
	}
	s, err := api.New(o)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("http://%s/", *addr)
	log.Fatal(http.ListenAndServe(*addr, s))
}
