package view

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// benchMachine returns a machine's row of typical size, about 700 bytes.
func benchMachine(n int) wire.Row {
	return wire.Row{Table: wire.TableMachines, Key: fmt.Sprintf("00000100%06x", n), Columns: map[string]wire.Value{
		"app": fmt.Sprintf("app%d", n%1000), "name": fmt.Sprintf("machine-%d", n), "region": "gru", "order_id": "01JAAAAAAAAAAAAAAAAAAAAAAA",
		"instance": "01JBBBBBBBBBBBBBBBBBBBBBBB", "state": "started",
		"config":     `{"image":"registry.example/shop:v12","guest":{"cpu_kind":"shared","cpus":1,"memory_mb":256},"env":{"PORT":"8080","MODE":"production"},"services":[{"protocol":"tcp","internal_port":8080,"ports":[{"port":443,"handlers":["tls","http"]}]}]}`,
		"takes":      `[{"resource":"cpu","amount":62},{"resource":"memory","amount":256}]`,
		"boot":       `{"number":1,"pid":12345,"port":40001}`,
		"events":     `[{"id":"01JCCCCCCCCCCCCCCCCCCCCCCC","type":"start","from":"starting","state":"started","source":"worker","at":"2026-01-02T03:04:05.678901234Z"}]`,
		"created_at": int64(1_700_000_000_000_000_000 + n), "updated_at": int64(1_700_000_001_000_000_000 + n),
	}}
}

func benchLog(b *testing.B, n int, row func(i int) wire.Row) [][]byte {
	b.Helper()
	log := make([][]byte, n)
	for i := range log {
		log[i] = encoded(b, "w2", 1, uint64(i+1), row(i))
	}
	return log
}

// BenchmarkApply applies transactions of one row each, from decoding to the commit.
func BenchmarkApply(b *testing.B) {
	const machines = 10_000
	state := func(i int) wire.Row {
		return wire.Row{Table: wire.TableMachines, Key: benchMachine(i % machines).Key, Columns: map[string]wire.Value{
			"state": fmt.Sprint("s", i), "updated_at": int64(i), "boot": fmt.Sprintf(`{"number":%d}`, i),
		}}
	}
	for name, row := range map[string]func(int) wire.Row{"new": benchMachine, "changed": state} {
		b.Run(name, func(b *testing.B) {
			m := startMember(b, Config{Path: tempFile(b), Site: "w1"})
			log := benchLog(b, max(b.N, 20_000), row)[:b.N]
			b.ReportAllocs()
			b.ResetTimer()
			m.take(log...)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkNewcomer restores a snapshot of 100 000 machines.
func BenchmarkNewcomer(b *testing.B) {
	const machines = 100_000
	from := startMember(b, Config{Path: tempFile(b), Site: "w1"})
	for i := 0; i < machines; i += wire.MaxRows {
		rows := make([]wire.Row, 0, wire.MaxRows)
		for n := i; n < min(i+wire.MaxRows, machines); n++ {
			rows = append(rows, benchMachine(n))
		}
		from.publish(rows...)
	}
	of := from.Self().Stream
	for b.Loop() {
		var buf bytes.Buffer
		if err := from.Snapshot(b.Context(), of, &buf); err != nil {
			b.Fatal(err)
		}
		size := buf.Len()
		to := startMember(b, Config{Path: tempFile(b), Site: "w3"})
		if err := to.Restore(b.Context(), of, &buf); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(size)/1e6, "MB")
		if err := to.stop(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(machines*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkPublish publishes one change and waits for it.
func BenchmarkPublish(b *testing.B) {
	m := startMember(b, Config{Path: tempFile(b), Site: "w1"})
	for i := 0; b.Loop(); i++ {
		row := benchMachine(i % 1000)
		row.Columns["updated_at"] = int64(i)
		m.publish(row)
	}
}

// BenchmarkKnown applies known transactions, which is what gossip does most of the time.
func BenchmarkKnown(b *testing.B) {
	m := startMember(b, Config{Site: "w1"})
	tx := encoded(b, "w2", 1, 1, benchMachine(1))
	m.take(tx)
	for b.Loop() {
		if v, err := m.Apply(tx); err != nil || v.Outcome != Known {
			b.Fatal(v, err)
		}
	}
}

// BenchmarkDigest computes the digest of a view with a thousand sites.
func BenchmarkDigest(b *testing.B) {
	m := startMember(b, Config{Site: "w1"})
	for i := range 1000 {
		m.take(encoded(b, bourse.WorkerID(fmt.Sprint("site", i)), 1, 1, volume("v", "x")))
	}
	for b.Loop() {
		m.Digest()
	}
}
