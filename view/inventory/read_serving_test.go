package inventory

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// serves returns the row of a machine in a state, with or without services.
func serves(n int, state bourse.State, services string) wire.Row {
	m := bourse.Machine{ID: bourse.MachineID(fmt.Sprintf("%014x", n)), App: "shop", State: state, Config: bourse.Config{Image: "host"}}
	if services != "" {
		m.Config.Services = json.RawMessage(services)
	}
	return MachineRow(&m)
}

// TestServing checks that Serving returns the same machines as a query for all machines with
// services, after a number of changes.
func TestServing(t *testing.T) {
	t.Parallel()
	const web = `[{"internal_port":80},{"internal_port":81}]`
	c := SchemaConn(t)
	seq := 0
	plant := func(site bourse.WorkerID, rows ...wire.Row) func() {
		return func() {
			for _, r := range rows { // deletes first, because REPLACE would not fire the triggers
				if err := schema.Run(c, "DELETE FROM machine_rows WHERE site = ? AND key = ?", site, r.Key); err != nil {
					t.Fatal(err)
				}
			}
			Plant(t, c, site, rows...)
			for _, r := range rows {
				seq++
				if err := schema.Run(c, "UPDATE machine_rows SET seq = ? WHERE site = ? AND key = ?", seq, site, r.Key); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	var s Serving
	for _, step := range []struct {
		name   string
		change func()
		want   string
	}{
		{"nothing", func() {}, ""},
		{"some", plant("w1", serves(1, bourse.StateStarted, web), serves(2, bourse.StateStarted, ""), serves(3, bourse.StateStopped, web)), "1@w1 started 3@w1 stopped"},
		{"the same", func() {}, "1@w1 started 3@w1 stopped"},
		{"another state", plant("w1", serves(1, bourse.StateStopping, web)), "1@w1 stopping 3@w1 stopped"},
		{"no services any more", plant("w1", serves(3, bourse.StateStopped, `[]`)), "1@w1 stopping"},
		{"services now", plant("w1", serves(2, bourse.StateStarted, web)), "1@w1 stopping 2@w1 started"},
		{"two owners", plant("w2", serves(2, bourse.StateFailed, web)), "1@w1 stopping 2@w1 started"},
		{"an invalid id", plant("w2", wire.Row{Table: wire.TableMachines, Key: "x", Columns: serves(9, bourse.StateStarted, web).Columns}), "1@w1 stopping 2@w1 started"},
		{"gone", func() {
			if err := schema.Run(c, "DELETE FROM machine_rows WHERE site = 'w1'"); err != nil {
				t.Fatal(err)
			}
		}, "2@w2 failed"},
	} {
		step.change()
		got, err := s.Read(c)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(got, func(a, b bourse.Machine) int { return cmp.Compare(a.ID, b.ID) })
		text := ""
		for i := range got {
			text += fmt.Sprintf(" %s@%s %s", got[i].ID[13:], got[i].Worker, got[i].State)
			whole, err := readMachines(c, Filter{ID: got[i].ID})
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(whole[0].Machine, got[i], cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("%s (-read +kept):\n%s", step.name, diff)
			}
		}
		if step.want != "" {
			step.want = " " + step.want
		}
		if text != step.want {
			t.Errorf("%s:%s, want%s", step.name, text, step.want)
		}
	}
}

// TestServingDecodesOnlyChanges checks that rows that have not changed are not decoded again.
func TestServingDecodesOnlyChanges(t *testing.T) {
	t.Parallel()
	c := SchemaConn(t)
	Plant(t, c, "w1", serves(1, bourse.StateStarted, `[{}]`), serves(2, bourse.StateStarted, `[{}]`))
	var s Serving
	if _, err := s.Read(c); err != nil {
		t.Fatal(err)
	}
	// This changes a column but not the row's sequence number. Serving therefore does not notice
	// the change, which never happens in practice.
	if err := schema.Run(c, "UPDATE machine_rows SET state = 'stopped'"); err != nil {
		t.Fatal(err)
	}
	if err := schema.Run(c, "UPDATE machine_rows SET seq = 2 WHERE key = ?", fmt.Sprintf("%014x", 2)); err != nil {
		t.Fatal(err)
	}
	got, err := s.Read(c)
	if err != nil {
		t.Fatal(err)
	}
	states := map[bourse.MachineID]bourse.State{}
	for i := range got {
		states[got[i].ID] = got[i].State
	}
	want := map[bourse.MachineID]bourse.State{"00000000000001": bourse.StateStarted, "00000000000002": bourse.StateStopped}
	if diff := gocmp.Diff(want, states); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestServingUsesIndexes(t *testing.T) {
	t.Parallel()
	c := SchemaConn(t)
	t.Logf("%s\n%s", plan(t, c, servingSQL), plan(t, c, servingMachineSQL))
	for sql, want := range map[string]string{
		servingSQL:        "SEARCH r USING INDEX sqlite_autoindex_machine_rows_1 (site=? AND key=?)",
		servingMachineSQL: "SEARCH r USING INDEX sqlite_autoindex_machine_rows_1 (site=? AND key=?)",
	} {
		if got := plan(t, c, sql); !strings.Contains(got, want) {
			t.Errorf("%s\nhas the plan\n%s", sql, got)
		}
	}
}

// BenchmarkServing reads 10 000 machines with services, one of which has changed.
func BenchmarkServing(b *testing.B) {
	c := SchemaConn(b)
	const machines = 10_000
	for n := range machines {
		Plant(b, c, "w1", serves(n, bourse.StateStarted, `[{"internal_port":80,"ports":[{"port":80,"handlers":["http"]}]}]`))
	}
	read := func(b *testing.B, s *Serving) {
		if list, err := s.Read(c); err != nil || len(list) != machines {
			b.Fatal(len(list), err)
		}
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			read(b, new(Serving))
		}
	})
	b.Run("again", func(b *testing.B) {
		var s Serving
		read(b, &s)
		for i := 2; b.Loop(); i++ {
			touch(b, c, i)
			read(b, &s)
		}
	})
}

func touch(b *testing.B, c *sqlite.Conn, seq int) {
	if err := schema.Run(c, "UPDATE machine_rows SET seq = ? WHERE site = 'w1' AND key = '00000000000001'", seq); err != nil {
		b.Fatal(err)
	}
}
