package inventory

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// Visible returns the parts of m that are published.
func Visible(m bourse.Machine) bourse.Machine {
	m.LastEvents, m.Config = m.LastEvents[:min(len(m.LastEvents), maxEvents)], m.Config.Public()
	if m.Lease != nil {
		lease := *m.Lease
		lease.Nonce = ""
		m.Lease = &lease
	}
	return m
}

// ByValue is a cmp option for types with unexported fields.
var ByValue = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})

func TestMachineReadsBackEqual(t *testing.T) {
	c := SchemaConn(t)
	all := schemaTables(t, c)
	rapid.Check(t, func(rt *rapid.T) {
		m := AnyMachine(rt)
		row := MachineRow(&m)
		if _, err := all.Check(m.Worker, row); err != nil {
			rt.Fatalf("the row does not fit: %v", err)
		}
		if s := fmt.Sprint(row); strings.Contains(s, "nonce") {
			rt.Fatalf("a lease's nonce is published: %s", s)
		}
		Plant(t, c, m.Worker, row)
		list, err := readMachines(c, Filter{ID: m.ID})
		if err != nil || len(list) != 1 {
			rt.Fatalf("read: %d machines, %v", len(list), err)
		}
		if diff := cmp.Diff(Visible(m), list[0].Machine, ByValue); diff != "" {
			rt.Fatalf("read back (-want +got):\n%s", diff)
		}
	})
}

// TestRowsContainAllColumns checks that each row has exactly the columns of its table. The value
// of any other column would be lost silently.
func TestRowsContainAllColumns(t *testing.T) {
	all := schemaTables(t, SchemaConn(t))
	now := time.Unix(1, 0)
	for _, row := range []wire.Row{
		MachineRow(&bourse.Machine{ID: "1"}), WorkerRow(&bourse.Facts{Worker: "w"}, false),
		AppRow(bourse.App{Name: "a", DeletedAt: &now}), CanceledRow("o", "w"),
		VolumeRow(&bourse.Volume{ID: "v"}), ImageRow(&bourse.Image{}),
	} {
		var got, want []string
		for name := range row.Columns {
			got = append(got, name)
		}
		for _, d := range all[row.Table].Defs {
			want = append(want, d.Name)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-schema +row):\n%s", row.Table, diff)
		}
	}
}

func TestMachineThatIsTooLargeForARow(t *testing.T) {
	c := SchemaConn(t)
	all := schemaTables(t, c)
	huge := map[string]string{}
	for i := range 20 {
		huge[fmt.Sprint(i)] = strings.Repeat("x", 1<<17)
	}
	services := []byte(`[{"internal_port":80}]`)
	deep := []byte(strings.Repeat("[", 100) + strings.Repeat("]", 100))
	for name, tt := range map[string]struct {
		give func(*bourse.Config)
		want func(*bourse.Config) bool // reports whether the part is still in the config
	}{
		"statics of 2 MB":          {func(c *bourse.Config) { c.Statics = quoted(2 << 20) }, func(c *bourse.Config) bool { return c.Metadata["k"] == "v" && string(c.Services) == string(services) }},
		"deep statics":             {func(c *bourse.Config) { c.Statics = deep }, func(c *bourse.Config) bool { return c.Metadata["k"] == "v" && string(c.Services) == string(services) }},
		"deep services":            {func(c *bourse.Config) { c.Services = deep }, func(c *bourse.Config) bool { return c.Metadata["k"] == "v" }},
		"raw JSON that is invalid": {func(c *bourse.Config) { c.Checks = []byte("{") }, func(c *bourse.Config) bool { return c.Metadata["k"] == "v" }},
		"no UTF-8":                 {func(c *bourse.Config) { c.Checks = []byte("[\"\xff\"]") }, func(c *bourse.Config) bool { return string(c.Checks) == "[\"\uFFFD\"]" }},
		"an environment":           {func(c *bourse.Config) { c.Env = huge }, func(c *bourse.Config) bool { return c.Metadata["k"] == "v" }},
		"metadata":                 {func(c *bourse.Config) { c.Metadata = huge }, func(*bourse.Config) bool { return true }},
		"an image":                 {func(c *bourse.Config) { c.Image = strings.Repeat("x", 2<<20) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := bourse.Machine{ID: "00000000000001", App: "shop", Name: "a\x00\xff", Config: bourse.Config{
				Image: "host", Guest: &bourse.Guest{CPUs: 2}, Env: map[string]string{"A": "b"}, Metadata: map[string]string{"k": "v"},
			}}
			m.Config.Services = services
			tt.give(&m.Config)
			row := MachineRow(&m)
			if _, err := all.Check("w1", row); err != nil {
				t.Fatalf("the row does not fit: %v", err)
			}
			Plant(t, c, "w1", row)
			list, err := readMachines(c, Filter{App: "shop"})
			if err != nil || len(list) != 1 {
				t.Fatalf("read: %d machines, %v", len(list), err)
			}
			got := &list[0].Config
			if tt.want == nil {
				if diff := cmp.Diff(bourse.Config{}, *got); diff != "" {
					t.Error(diff)
				}
				return
			}
			if got.Image != "host" || got.Guest == nil || got.Guest.CPUs != 2 || !tt.want(got) {
				t.Errorf("too much was left out: %+v", got)
			}
		})
	}
}

func quoted(n int) []byte { return []byte(`"` + strings.Repeat("x", n) + `"`) }

func TestTimesKeepTheirOrder(t *testing.T) {
	last := time.Time{}
	for _, at := range []time.Time{
		{},
		time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(-1, 0), time.Unix(0, 0), time.Unix(0, 1), time.Now(),
		time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2263, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(99999, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		got := timeOf(nanos(at))
		if got.Before(last) {
			t.Errorf("%s became %s, before %s", at, got, last)
		}
		if at.IsZero() != got.IsZero() && at.Unix() > 0 {
			t.Errorf("%s became %s", at, got)
		}
		last = got
	}
}

// TestConfigsFitIntoRows checks that every valid config fits into its row completely, because
// lists of machines are read from the rows.
func TestConfigsFitIntoRows(t *testing.T) {
	for name, fill := range map[string]string{"text": "x", "escaped": "\x01", "not UTF-8": "\xff", "markup": "<"} {
		c := bourse.Config{Image: "nginx", Metadata: map[string]string{}}
		for i := 0; c.Normalize() == nil; i++ {
			c.Metadata[strconv.Itoa(i)] = strings.Repeat(fill, 8000)
			if i > 1000 {
				t.Fatal("configs have no size limit")
			}
		}
		for i := len(c.Metadata) - 1; c.Normalize() != nil; i-- {
			delete(c.Metadata, strconv.Itoa(i))
		}
		text, _ := MachineRow(&bourse.Machine{Config: c}).Columns["config"].(string)
		var got bourse.Config
		if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Metadata) != len(c.Metadata) || len(got.Metadata) < 4 {
			t.Errorf("%s: %d of %d members of %d bytes, %v", name, len(got.Metadata), len(c.Metadata), len(text), err)
		}
	}
}
