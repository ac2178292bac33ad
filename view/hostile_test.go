package view

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
	"github.com/bourse-dev/bourse/view/wire"
)

// raw returns a transaction with rows that our encoder would not write.
func raw(t testing.TB, seq uint64, rows ...any) []byte {
	t.Helper()
	w := wire.TxBody{TxHead: wire.TxHead{Site: "w2", Epoch: 1, Seq: seq, At: 1}, Birth: testKey.Birth}
	for _, r := range rows {
		b, ok := r.([]byte)
		if !ok {
			var err error
			if b, err = cbor.Marshal(r); err != nil {
				t.Fatal(err)
			}
		}
		w.Rows = append(w.Rows, b)
	}
	b, err := wire.EncodeBody(w)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := wire.SignBody(b, testSeal())
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func badRows() map[string]any {
	type m = map[int]any
	cols := func(c map[string]any) m { return m{1: "volume", 2: "k", 3: c} }
	return map[string]any{
		"not CBOR":                     []byte{0xff, 0x00},
		"nothing":                      []byte{},
		"no table":                     m{2: "k"},
		"a table's name with SQL":      m{1: `x" (`, 2: "k"},
		"no key":                       m{1: "volume"},
		"a long key":                   m{1: "volume", 2: strings.Repeat("k", wire.MaxKey+1)},
		"a key with a zero byte":       m{1: "volume", 2: "a\x00b"},
		"text in a number's column":    cols(m2{"size_gb": "big"}),
		"a number in text":             cols(m2{"name": 7}),
		"bytes in text":                cols(m2{"name": []byte("x")}),
		"text with a zero byte":        cols(m2{"name": "a\x00b"}),
		"a list":                       cols(m2{"name": []int{1}}),
		"a truth":                      cols(m2{"name": true}),
		"a number too large":           cols(m2{"size_gb": uint64(math.MaxUint64)}),
		"not a number":                 m{1: "worker", 2: "w2", 3: m2{"load": math.NaN()}},
		"infinite":                     m{1: "worker", 2: "w2", 3: m2{"load": math.Inf(1)}},
		"a column's name with SQL":     cols(m2{"a\"; DROP": 1}),
		"another's site":               cols(m2{"site": "w1"}),
		"our bookkeeping":              cols(m2{"seq": 1}),
		"a value too large":            cols(m2{"name": strings.Repeat("x", wire.MaxValue+1)}),
		"a row of 10 MB":               cols(m2{"name": strings.Repeat("x", 10<<20)}),
		"a row of 10 MB in columns":    cols(manyColumns(60, 1<<17)),
		"too many columns":             cols(manyColumns(wire.MaxColumns+1, 1)),
		"far too many columns":         cols(manyColumns(5000, 1)),
		"malformed JSON":               m{1: "machine", 2: "k", 3: m2{"config": `{"services":`}},
		"JSON too deep":                m{1: "machine", 2: "k", 3: m2{"config": strings.Repeat("[", 500) + strings.Repeat("]", 500)}},
		"another worker's account":     m{1: "worker", 2: "w1"},
		"an owned row with a clock":    m{1: "volume", 2: "k", 5: 1},
		"a shared row without a clock": m{1: "secret", 2: "k"},
		"a deletion with columns":      m{1: "volume", 2: "k", 3: m2{"name": "x"}, 4: true},
		"a deleted app":                m{1: "app", 2: "k", 4: true, 5: 1},
		"a clock a year ahead":         m{1: "secret", 2: "future", 5: uint64(wire.ClockAt(time.Now().AddDate(1, 0, 0)))},
		"a clock in the far future":    m{1: "secret", 2: "future", 5: uint64(math.MaxUint64)},
	}
}

type m2 = map[string]any

func manyColumns(n, size int) m2 {
	c := m2{}
	for i := range n {
		c[fmt.Sprintf("c%d", i)] = strings.Repeat("x", size)
	}
	return c
}

// TestBadRowIsQuarantinedAlone checks that whatever is wrong with a row, the other rows of its
// transaction are applied, its stream continues, and the row is retained for inspection.
func TestBadRowIsQuarantinedAlone(t *testing.T) {
	for name, row := range badRows() {
		t.Run(name, func(t *testing.T) {
			m := startMember(t, Config{})
			good := map[int]any{1: "volume", 2: "good", 3: m2{"name": "x"}}
			last := map[int]any{1: "volume", 2: "last", 3: m2{"name": "y"}}
			m.take(raw(t, 1, good, row, last), raw(t, 2, last))
			if got := m.dump(); len(got) != 2 || m.Head(wire.Stream{Site: "w2", Epoch: 1}) != 2 {
				t.Errorf("head %d, rows %v", m.Head(wire.Stream{Site: "w2", Epoch: 1}), got)
			}
			q := m.Health().Quarantine
			if q.Count != 1 || q.Newest[0].Origin != (wire.Position{Stream: wire.Stream{Site: "w2", Epoch: 1}, Seq: 1}) || q.Newest[0].Reason == "" {
				t.Errorf("quarantine: %+v", q)
			}
			if p := m.publish(secret("ours", "d", 0)); p.Seq != 1 {
				t.Error("publishing failed after that")
			}
			m.sound()
		})
	}
}

func TestMalformedTransactionsChangeNothing(t *testing.T) {
	m := startMember(t, Config{})
	good := encoded(t, "w2", 1, 1, volume("v", "x"))
	bad := map[string][]byte{
		"nothing":           {},
		"another version":   append([]byte{wire.WireVersion + 1}, good[1:]...),
		"too large":         make([]byte, wire.MaxFrame+1),
		"trailing bytes":    append(slices.Clone(good), 0),
		"site with a slash": encoded(t, "../w2", 1, 1),
		"no site":           encoded(t, "", 1, 1),
		"no epoch":          encoded(t, "w2", 0, 1),
		"a huge epoch":      encoded(t, "w2", wire.MaxEpoch, 1),
		"number 0":          encoded(t, "w2", 1, 0),
		"a huge number":     encoded(t, "w2", 1, wire.MaxSeq),
		"too many rows":     raw(t, 1, make([]any, wire.MaxRows+1)...),
	}
	for n := range len(good) {
		bad[fmt.Sprintf("cut at %d", n)] = good[:n]
	}
	for name, b := range bad {
		if v, err := m.Apply(b); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%s: %v, error %v, want %s", name, v, err, bourse.CodeInvalid)
		}
	}
	m.flush()
	if got := m.dump(); len(got) != 0 || len(m.Digest().Heads) != 0 || m.Health().Quarantine.Count != 0 {
		t.Errorf("the view contains %v, %v", got, m.Digest())
	}
}

func TestReplayedAndReordered(t *testing.T) {
	m := startMember(t, Config{})
	var log [][]byte
	for seq := range uint64(5) {
		log = append(log, encoded(t, "w2", 1, seq+1, volume("v", fmt.Sprint(seq))))
	}
	want := []struct {
		tx  int
		out Outcome
	}{{2, Gap}, {1, Gap}, {4, Gap}, {0, Queued}, {0, Known}, {2, Known}, {3, Queued}, {4, Known}}
	for _, w := range want {
		got, err := m.Apply(log[w.tx])
		if err != nil || got.Outcome != w.out || got.Position.Seq != uint64(w.tx+1) {
			t.Errorf("transaction %d: %v, %v, want outcome %d", w.tx+1, got, err, w.out)
		}
	}
	m.flush()
	if m.Head(wire.Stream{Site: "w2", Epoch: 1}) != 5 {
		t.Errorf("head %d, want 5: early transactions should have been retained", m.Head(wire.Stream{Site: "w2", Epoch: 1}))
	}
	m.take(log...)
	if r, _ := m.row(wire.TableVolumes, "w2", "v"); wire.TextOf(r.Columns.Get("app")) != "4" {
		t.Errorf("after a replay, the row is %v", r.Columns)
	}
}

// If other members send transactions that claim to be from this server's site, the transactions are not applied. If
// they are ahead of this server's own position, this server has lost transactions.
func TestForeignTransactionsOfOwnSiteAreRejected(t *testing.T) {
	m := startMember(t, Config{})
	m.publish(volume("mine", "x"))
	self, want := m.Self(), m.dump()
	next := wire.Position{Stream: self.Stream, Seq: self.Seq + 1}
	for p, out := range map[wire.Position]Outcome{self: Known, {Stream: wire.Stream{Site: self.Site, Epoch: self.Epoch + 1}, Seq: 1}: FromFuture} {
		v, err := m.Apply(encoded(t, p.Site, p.Epoch, p.Seq, volume("mine", "stolen")))
		if err != nil || v.Outcome != out {
			t.Errorf("%v: %v, %v, want outcome %d", p, v, err, out)
		}
	}
	if v, err := m.Apply(encoded(t, next.Site, next.Epoch, next.Seq)); bourse.CodeOf(err) != bourse.CodeForbidden {
		t.Errorf("signed by another site: %v, %v, want %s", v, err, bourse.CodeForbidden)
	}
	birth, key := m.verifier.Keys.Own()
	lastWord, err := wire.Encode(&wire.Transaction{Position: next}, wire.SigningKey{Cluster: "test", Birth: birth, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := m.Apply(lastWord); err != nil || v.Outcome != FromFuture {
		t.Errorf("signed by this server and lost: %v, %v, want outcome %d", v, err, FromFuture)
	}
	m.flush()
	if d := cmp.Diff(want, m.dump()); d != "" {
		t.Errorf("the server's own rows have changed:\n%s", d)
	}
	if err := m.Renew(t.Context(), wire.Stream{Site: "w2", Epoch: 1}); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("renew after another site's stream: got %v, want invalid", err)
	}
	lost := m.RowsLost()
	if err := m.Renew(t.Context(), wire.Stream{Site: self.Site, Epoch: self.Epoch + 1000}); err != nil {
		t.Fatal(err)
	}
	<-lost
	if m.Self().Epoch != self.Epoch+1001 || len(m.dump()) != 0 {
		t.Errorf("after a new epoch: %v with %v", m.Self(), m.dump())
	}
}

// TestUnknownColumnsAndTablesAreQuarantined checks that rows that do not fit the schema are
// rejected, whether they are in a transaction or in a snapshot, and that all other rows are
// applied.
func TestUnknownColumnsAndTablesAreQuarantined(t *testing.T) {
	a, b := startMember(t, Config{}), startMember(t, Config{Site: "w3"})
	odd := volume("odd", "x")
	odd.Columns["color"] = "red"
	a.take(encoded(t, "w2", 1, 1, volume("v", "x"), odd,
		wire.Row{Table: "quota", Key: "k", Clock: 5, Columns: map[string]wire.Value{"n": int64(3)}},
		wire.Row{Table: "gadget", Key: "k", Columns: map[string]wire.Value{"n": int64(3)}},
		wire.Row{Table: "gadget", Key: "l", Deleted: true}))
	restore(t, a, b, wire.Stream{Site: "w2", Epoch: 1})
	for _, m := range []*member{a, b} {
		m.sound()
		if d := cmp.Diff(a.dump(), m.dump()); d != "" || len(a.dump()) != 1 {
			t.Errorf("%s has %v:\n%s", m.config.Site, m.dump(), d)
		}
	}
	q := a.Health().Quarantine
	if q.Count != 4 {
		t.Errorf("in quarantine: %+v", q)
	}
	for _, r := range q.Newest {
		if !strings.HasSuffix(r.Reason, " does not exist") && !strings.HasSuffix(r.Reason, "table volume has no such column") {
			t.Errorf("%s of %s: %s", r.Key, r.Table, r.Reason)
		}
	}
}

// A row whose clock is ahead waits in quarantine, and the local clock does not follow it.
func TestRowWithFutureClockWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, Config{})
		defer m.end()
		ahead := wire.ClockAt(time.Now().Add(time.Hour))
		m.take(encoded(t, "w2", 1, 1, secret("shop/a", "late", ahead), secret("shop/b", "good", wire.ClockAt(time.Now()))))
		q := m.Health().Quarantine
		if len(m.dump()) != 1 || q.Count != 1 || !strings.Contains(q.Newest[0].Reason, "clock") {
			t.Fatalf("immediately: %v, %+v", m.dump(), q)
		}
		m.publish(secret("shop/a", "ours", 0))
		time.Sleep(50 * time.Minute)
		synctest.Wait()
		if m.Health().Quarantine.Count != 1 {
			t.Error("the row was applied too early")
		}
		time.Sleep(7 * time.Minute)
		synctest.Wait()
		if m.Health().Quarantine.Count != 0 {
			t.Error("the row is still in quarantine")
		}
		got := m.dump()
		if len(got) != 2 || !strings.Contains(got[0], "late") {
			t.Errorf("the row was not applied: %v", got)
		}
		m.sound()
	})
}

// A transaction that panics or fails when it is applied is skipped, and all others are applied.
func TestTransactionThatPanicsIsSkipped(t *testing.T) {
	for name, fail := range map[string]func() error{
		"panic": func() error { panic("a bug of ours") },
		"error": func() error { return sqlite.ResultConstraint.ToError() },
	} {
		t.Run(name, func(t *testing.T) {
			applied := 0
			poison := map[int]bool{}
			m := startMember(t, Config{Log: testLog(t), Fault: func(stage FaultStage, _ uint64) error {
				if stage == FaultApply {
					applied++
					if applied >= 3 && applied <= 5 { // the third transaction: in a batch, alone, and row by row
						poison[applied] = true
						return fail()
					}
				}
				return nil
			}})
			for seq := range uint64(6) {
				m.take(encoded(t, "w2", 1, seq+1, volume(fmt.Sprint("v", seq), "x")))
			}
			if len(poison) != 3 {
				t.Fatalf("failed %d times, want 3", len(poison))
			}
			if m.Head(wire.Stream{Site: "w2", Epoch: 1}) != 6 || len(m.dump()) != 5 || m.Health().Quarantine.Count != 1 {
				t.Errorf("head %d, %d rows, quarantine %+v", m.Head(wire.Stream{Site: "w2", Epoch: 1}), len(m.dump()), m.Health().Quarantine)
			}
			m.publish(volume("mine", "x"))
			m.sound()
		})
	}
}

// A row that SQLite rejects only when it is written is quarantined alone.
func TestRowThatCannotBeWrittenIsQuarantinedAlone(t *testing.T) {
	m := startMember(t, Config{})
	err := m.submit(t.Context(), false, func(b *batch) error {
		b.written = true
		return schema.Run(b.conn, `CREATE TRIGGER poison BEFORE INSERT ON volume_rows WHEN new.app = 'poison' BEGIN SELECT raise(ABORT, 'poison'); END`)
	})
	if err != nil {
		t.Fatal(err)
	}
	m.take(encoded(t, "w2", 1, 1, volume("a", "x"), volume("b", "poison"), volume("c", "x")), encoded(t, "w3", 1, 1, volume("d", "x")))
	if _, err := m.Publish(t.Context(), volume("mine", "poison")); err == nil {
		t.Error("an invalid row was published")
	}
	if got := m.dump(); len(got) != 3 || m.Health().Quarantine.Count != 1 || m.Self().Seq != 0 {
		t.Errorf("rows %v, quarantine %+v", got, m.Health().Quarantine)
	}
	m.sound()
	other := startMember(t, Config{Site: "w7"})
	other.take(encoded(t, "w2", 1, 1, volume("a", "x"), volume("b", "poison"), volume("c", "x")))
	restore(t, other, m, wire.Stream{Site: "w2", Epoch: 1})
	if m.Health().Quarantine.Count != 2 || len(m.dump()) != 3 {
		t.Errorf("after a snapshot with such a row: rows %v, quarantine %+v", m.dump(), m.Health().Quarantine)
	}
	m.sound()
}

func TestQuarantineIsBounded(t *testing.T) {
	m := startMember(t, Config{})
	for seq := range uint64(3) {
		rows := make([]any, wire.MaxRows)
		for i := range rows {
			rows[i] = map[int]any{1: "volume", 2: fmt.Sprint(i), 3: m2{"name": 7}}
		}
		m.take(raw(t, seq+1, rows...))
	}
	if q := m.Health().Quarantine; q.Count != maxQuarantine || len(q.Newest) != healthNewest || q.Newest[0].Origin.Seq != 3 {
		t.Errorf("quarantine of %d, newest %+v", q.Count, q.Newest[0])
	}
}
