package inventory_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// usual returns a machine of typical size: about 2 KB of JSON.
func usual(n int, app bourse.AppName, region bourse.Region) wire.Row {
	at := time.Unix(1_700_000_000+int64(n), 0)
	m := bourse.Machine{
		ID: bourse.MachineID(fmt.Sprintf("%014x", n)), Name: fmt.Sprint("web-", n), App: app, Region: region,
		Order: bourse.NewOrderID(), Instance: bourse.NewInstanceID(), State: bourse.StateStarted,
		Takes: bourse.Amounts{{Resource: "cpu", Amount: 125}, {Resource: "memory", Amount: 256}},
		Boot:  bourse.Boot{Number: 1, PID: n, Port: 20000}, CreatedAt: at, UpdatedAt: at,
		Config: bourse.Config{
			Image: "registry.example/shop/web:v42", Guest: &bourse.Guest{CPUKind: "shared", CPUs: 1, MemoryMB: 256},
			Env:      map[string]string{"DATABASE_URL": "postgres://db.internal:5432/shop", "LOG_LEVEL": "info", "PORT": "8080", "PRIMARY_REGION": "gru"},
			Metadata: map[string]string{"process_group": "web", "release": "42"},
			Restart:  &bourse.Restart{Policy: bourse.RestartOnFailure, MaxRetries: 10},
		},
	}
	m.Config.Services = []byte(`[{"protocol":"tcp","internal_port":8080,"autostop":"stop","autostart":true,"ports":[{"port":80,"handlers":["http"]},{"port":443,"handlers":["tls","http"]}],"concurrency":{"type":"requests","soft_limit":200,"hard_limit":250}}]`)
	for _, state := range []bourse.State{bourse.StateStarted, bourse.StateStarting, bourse.StateCreated} {
		m.LastEvents = append(m.LastEvents, bourse.Event{
			ID: bourse.EventIDAt(at, [10]byte{byte(n)}), Type: bourse.EventStart, From: bourse.StateStarting, State: state, Source: bourse.SourceUser, At: at, Instance: m.Instance,
		})
	}
	return inventory.MachineRow(&m)
}

// filled returns a file-backed view with this many machines, ten per app.
func filled(b *testing.B, machines int) *view.View {
	b.Helper()
	v, err := view.Open(view.Config{Path: filepath.Join(b.TempDir(), "view.db"), Cluster: "bench", Site: "w1"})
	if err != nil {
		b.Fatal(err)
	}
	running(b, v)
	rows := make([]wire.Row, 0, wire.MaxRows)
	for n := range machines {
		rows = append(rows, usual(n, bourse.AppName(fmt.Sprint("app-", n%max(1, machines/10))), []bourse.Region{"gru", "mad", "iad"}[n%3]))
		if len(rows) == wire.MaxRows || n == machines-1 {
			if _, err := v.Publish(b.Context(), rows...); err != nil {
				b.Fatal(err)
			}
			rows = rows[:0]
		}
	}
	return v
}

const benchMachines = 100_000

// p99 calls a function repeatedly and reports the 99th percentile of its durations.
func p99(b *testing.B, call func(i int) error) {
	b.Helper()
	b.ReportAllocs()
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		if err := call(i); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100])/1e3, "p99-us")
	b.ReportMetric(float64(took[len(took)/2])/1e3, "p50-us")
}

// BenchmarkMachinesOfApp lists the 10 machines of one app, in a view of 100 000 machines, and
// runs other queries.
func BenchmarkMachinesOfApp(b *testing.B) {
	v := filled(b, benchMachines)
	b.Run("list", func(b *testing.B) {
		p99(b, func(i int) error {
			list, err := view.Query(b.Context(), v, inventory.Machines(inventory.Filter{App: bourse.AppName(fmt.Sprint("app-", i*7919%(benchMachines/10)))}))
			if err == nil && (len(list) != 10 || list[0].Config.Image == "") {
				err = fmt.Errorf("%d machines", len(list))
			}
			return err
		})
	})
	b.Run("one", func(b *testing.B) {
		p99(b, func(i int) error {
			m, err := view.Query(b.Context(), v, inventory.Machine(bourse.MachineID(fmt.Sprintf("%014x", i*7919%benchMachines))))
			if err == nil && m == nil {
				err = fmt.Errorf("the machine is missing")
			}
			return err
		})
	})
	b.Run("count", func(b *testing.B) {
		p99(b, func(int) error { _, err := view.Query(b.Context(), v, inventory.CountMachines()); return err })
	})
}

// BenchmarkWorkers reads 3000 workers, as each refresh of a directory does.
func BenchmarkWorkers(b *testing.B) {
	c := inventory.SchemaConn(b)
	for i := range 3000 {
		id := bourse.WorkerID(fmt.Sprint("w", i))
		inventory.Plant(b, c, id, inventory.WorkerRow(&bourse.Facts{
			Worker: id, Region: "gru", Tag: bourse.WorkerTag(i + 1), Labels: map[string]string{"arch": "arm64", "os": "linux", "rack": fmt.Sprint(i / 40)},
			Accounts: []bourse.Account{{Resource: "cpu", Total: 64000}, {Resource: "disk", Total: 1 << 20}, {Resource: "memory", Total: 1 << 17}},
		}, false))
	}
	b.ReportAllocs()
	for b.Loop() {
		if list, err := inventory.Workers()(c); err != nil || len(list) != 3000 {
			b.Fatal(len(list), err)
		}
	}
}
