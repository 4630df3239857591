package store_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/custody-project/custody/audit"
	"github.com/custody-project/custody/store"
	"github.com/custody-project/custody/store/storetest"
)

// TestColumns: both readers fill a head with the fields that the table of kinds makes searchable, and no others.
func TestColumns(t *testing.T) {
	for _, k := range audit.KindTable() {
		e := audit.Event{Time: storetest.Start(), Observer: audit.Host, Kind: k.Kind}
		values := texts(reflect.ValueOf(e.SetPayload()).Elem())
		body, err := json.Marshal(audit.Record{V: audit.Version, Run: "r-1", Seq: 7, Event: e})
		if err != nil {
			t.Fatal(err)
		}
		want := map[audit.Column]string{}
		for _, c := range k.Columns {
			if want[c.Column] != "" {
				t.Errorf("kind %s: two fields fill the column %s", k.Kind, c.Column)
			}
			want[c.Column] = values[c.Field]
		}
		if want[audit.ColumnHost] == "" {
			want[audit.ColumnHost] = want[audit.ColumnAddress]
		}
		delete(want, audit.ColumnAddress)
		for reader, parse := range map[string]func([]byte) (store.Head, error){"ParseHead": store.ParseHead, "DecodeHead": store.DecodeHead} {
			h, err := parse(body)
			if err != nil {
				t.Fatalf("kind %s: %v", k.Kind, err)
			}
			for column, got := range map[audit.Column]string{audit.ColumnProc: h.Proc, audit.ColumnPath: h.Path, audit.ColumnHost: h.Host,
				audit.ColumnHash: h.Hash, audit.ColumnSecret: h.Secret, audit.ColumnRule: h.Rule} {
				if got != want[column] {
					t.Errorf("kind %s, %s: the column %s is %q, the table of kinds has %q", k.Kind, reader, column, got, want[column])
				}
			}
		}
	}
}

// texts sets each text of a payload to a unique value, and returns them by their JSON names.
func texts(payload reflect.Value) map[string]string {
	values := map[string]string{}
	for i := range payload.NumField() {
		if f := payload.Field(i); f.Kind() == reflect.String {
			name, _, _ := strings.Cut(payload.Type().Field(i).Tag.Get("json"), ",")
			values[name] = "value-of-" + name
			f.SetString(values[name])
		}
	}
	return values
}
