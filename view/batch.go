package view

import (
	"maps"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"

	"github.com/bourse-dev/bourse/view/wire"
)

// maxSkew limits how far another member's clock may be ahead of this server's.
const maxSkew = 5 * time.Minute

// batch collects the changes of one commit. Its SQL statements are executed immediately. Its
// changes to the in-memory state are applied once the commit has succeeded.
type batch struct {
	conn     *sqlite.Conn
	tables   schema.Tables
	base     *state
	now      time.Time
	hasher   *wire.Hasher
	verifier *wire.Verifier
	perRow   bool // whether to use a savepoint for each row, and to quarantine rows that fail
	overlay
	effects
}

// overlay contains the batch's changes to the in-memory state.
type overlay struct {
	self   wire.Stream
	clock  wire.Clock
	heads  map[wire.Stream]head
	newest map[bourse.WorkerID]uint64
	sums   map[sumKey]checksum
	epochs map[bourse.WorkerID][]uint64
	gone   map[wire.Stream]bool // streams to remove
	signer wire.Signer

	refused    bool        // whether the quarantine has changed
	refusals   int         // number of rows quarantined
	quarantine *Quarantine // the quarantine's new contents; nil if unchanged
	written    bool        // whether the file has changed in a way that the other fields don't record
}

// effects collects the events that are reported after the commit.
type effects struct {
	touched    map[string]bool      // tables that changed, for watchers
	gaps       map[wire.Stream]bool // streams in which a transaction was skipped
	recent     []recent             // transactions to append to the ring, and streams to drop from it
	published  []announcement
	lost       bool // whether this server began a new epoch
	wasRemoved bool // whether an operator had removed this server
	forged     int  // number of shared rows that are not signed by the sites that they name
}

// recent is an update to the ring after a commit: either a transaction to add or, if frame is nil, the position
// up to which a stream was restored from a snapshot.
type recent struct {
	wire.Position
	frame []byte
}

// announcement is a transaction of this server that has to be sent to the other members.
type announcement struct {
	tx      *wire.Transaction
	encoded []byte
}

func newBatch(c *sqlite.Conn, all schema.Tables, base *state, now time.Time, h *wire.Hasher, n *wire.Verifier) *batch {
	return &batch{
		conn: c, tables: all, base: base, now: now, hasher: h, verifier: n,
		overlay: overlay{
			self: base.self, clock: base.clock, signer: base.signer,
			heads: map[wire.Stream]head{}, newest: map[bourse.WorkerID]uint64{}, sums: map[sumKey]checksum{},
			epochs: map[bourse.WorkerID][]uint64{}, gone: map[wire.Stream]bool{},
		},
		effects: effects{touched: map[string]bool{}, gaps: map[wire.Stream]bool{}},
	}
}

func (b *batch) head(s wire.Stream) head {
	if h, ok := b.heads[s]; ok || b.gone[s] {
		return h
	}
	return b.base.heads[s]
}

func (b *batch) newestOf(site bourse.WorkerID) uint64 {
	if e, ok := b.newest[site]; ok {
		return e
	}
	return b.base.newest[site]
}

func (b *batch) tableSum(k sumKey) checksum {
	if s, ok := b.sums[k]; ok {
		return s
	}
	return b.base.sums[k]
}

// dirty reports whether the batch contains changes to commit.
func (b *batch) dirty() bool {
	return len(b.heads)+len(b.gone)+len(b.newest)+len(b.sums)+len(b.touched) > 0 || b.refused || b.written || b.self != b.base.self || b.clock != b.base.clock
}

// flush updates the file to match the changes to the in-memory state. It is called before the commit.
func (b *batch) flush() error {
	for s, h := range b.heads {
		err := schema.Run(b.conn, `INSERT INTO streams (site, epoch, seq, hash, at, rows, bytes, birth) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (site, epoch) DO UPDATE SET seq = excluded.seq, hash = excluded.hash, at = excluded.at, rows = excluded.rows, bytes = excluded.bytes`,
			s.Site, s.Epoch, h.seq, h.hash, h.at, h.rows, h.bytes, h.by.Birth)
		if err != nil {
			return err
		}
	}
	for k, s := range b.sums {
		err := schema.Run(b.conn, `INSERT INTO sums (tbl, shared, rows, sum) VALUES (?, ?, ?, ?)
			ON CONFLICT (tbl) DO UPDATE SET rows = excluded.rows, sum = excluded.sum`, k.table, k.shared, s.rows, s.hash)
		if err != nil {
			return err
		}
	}
	if b.refused {
		if err := trimQuarantine(b.conn); err != nil {
			return err
		}
		q, err := readQuarantine(b.conn)
		if err != nil {
			return err
		}
		b.quarantine = &q
	}
	if b.self != b.base.self || b.clock != b.base.clock {
		return schema.Run(b.conn, "UPDATE meta SET epoch = ?, clock = ?", b.self.Epoch, int64(b.clock))
	}
	return nil
}

// committed applies the batch's changes to the in-memory state after the commit. The caller holds
// the view's lock.
func (b *batch) committed() {
	st := b.base
	st.self, st.clock, st.signer = b.self, b.clock, b.signer
	for s := range b.gone {
		delete(st.heads, s)
	}
	maps.Copy(st.heads, b.heads)
	maps.Copy(st.newest, b.newest)
	maps.Copy(st.epochs, b.epochs)
	for s := range b.gone {
		if st.newest[s.Site] == 0 {
			delete(st.newest, s.Site)
		}
		if len(st.epochs[s.Site]) == 0 {
			delete(st.epochs, s.Site)
		}
	}
	maps.Copy(st.sums, b.sums)
	if b.quarantine != nil {
		st.quarantine = *b.quarantine
	}
}

// nextClock returns the clock value for a row version that this server writes. The result is greater than below, which
// is the clock value of the version that is being replaced (0 if there is none).
func (b *batch) nextClock(below wire.Clock) wire.Clock {
	physical := wire.ClockAt(b.now)
	next := max(physical, below+1)
	// Don't adopt a clock value that is too far ahead of the local clock.
	if b.clock < wire.ClockAt(b.now.Add(maxSkew)) {
		next = max(next, b.clock+1)
		b.clock = next
	}
	return next
}

// advanceClock advances the clock to at least c, the clock value of another member's write.
func (b *batch) advanceClock(c wire.Clock) { b.clock = max(b.clock, c) }
