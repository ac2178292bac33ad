package replication_test

import (
	"bytes"
	"context"
	"crypto"
	"encoding/binary"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/gossip/gossiptest"
	"github.com/bourse-dev/bourse/view/replication"
	"github.com/bourse-dev/bourse/view/wire"
)

// message encodes an envelope. It does not use the package's own code, because a later release
// must still be able to read this release's envelopes.
func message(version byte, cluster string, frames ...[]byte) []byte {
	h := fnv.New64a()
	h.Write([]byte(cluster))
	b := binary.BigEndian.AppendUint64([]byte{version}, h.Sum64())
	return append(b, bytes.Join(frames, nil)...)
}

func frameOf(kind byte, body []byte) []byte {
	return append(binary.AppendUvarint([]byte{kind}, uint64(len(body))), body...)
}

var strangerKey = sync.OnceValues(func() (*wire.Key, error) { return wire.NewKey(bourse.RoleBroker) })

// strangerSeal returns the signing key of invented sites.
func strangerSeal(t testing.TB) wire.SigningKey {
	t.Helper()
	k, err := strangerKey()
	if err != nil {
		t.Fatal(err)
	}
	birth, key := k.Own()
	return wire.SigningKey{Cluster: "bourse", Birth: birth, Key: key}
}

// transaction returns an encoded transaction of an invented site.
func transaction(t testing.TB, site string, seq uint64, rows ...wire.Row) []byte {
	t.Helper()
	b, err := wire.Encode(&wire.Transaction{
		Position: wire.Position{Stream: wire.Stream{Site: bourse.WorkerID(site), Epoch: 7}, Seq: seq}, At: 1, Rows: rows,
	}, strangerSeal(t))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func volumeRow(key string) wire.Row {
	return wire.Row{Table: wire.TableVolumes, Key: key, Columns: map[string]wire.Value{"app": "web"}}
}

// TestHostileRumors sends invalid packets of all kinds between valid ones. Each invalid packet
// must be counted, and few must be logged. All valid ones must be applied.
func TestHostileRumors(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		var log gossiptest.Log
		n := startNode(t, gossiptest.NewMemory(1), gossiptest.NodeConfig{Number: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
		<-n.Members.Ready()
		stream := wire.Stream{Site: "x1", Epoch: 7}
		good := func(seq uint64) []byte {
			return message(1, "bourse", frameOf(1, []byte("x1")), frameOf(2, transaction(t, "x1", seq, volumeRow("v"+string(rune('a'+seq%26))))))
		}
		dice := rand.New(rand.NewPCG(1, 2))
		for seq := uint64(1); seq <= 50; seq += 2 {
			first, second := good(seq), good(seq+1)
			for range 3 { // repeatedly and out of order
				n.Replicator.Receive(second)
				n.Replicator.Receive(first)
			}
			n.Replicator.Receive(first[:dice.IntN(len(first))])
			n.Replicator.Receive(append([]byte{2}, first[1:]...))
			n.Replicator.Receive(message(1, "other", frameOf(2, transaction(t, "x2", seq))))
			n.Replicator.Receive(message(1, "bourse", frameOf(2, bytes.Repeat([]byte{0xff}, 100)), frameOf(3, []byte{0xff})))
			noise := bytes.Clone(second)
			noise[9+dice.IntN(len(noise)-9)] ^= 1 << dice.IntN(8)
			if noise[9] != 2 { // the flipped bit may have left the packet valid
				n.Replicator.Receive(noise[:len(noise)-1])
			}
			n.Replicator.Receive(nil)
		}
		if err := n.View.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := n.View.Head(stream); got != 50 {
			t.Errorf("the member has %d transactions of x1, want 50", got)
		}
		if got := n.View.Head(wire.Stream{Site: "x2", Epoch: 7}); got != 0 {
			t.Errorf("the member has %d transactions of another cluster", got)
		}
		r := n.Replicator.Traffic().Refused
		if r.OtherCluster != 25 || r.OtherVersion != 25 || r.Malformed < 75 {
			t.Errorf("refused: %+v", r)
		}
		if lines := log.Lines("message about the view refused"); lines < 2 || lines > 4 {
			t.Errorf("%d log lines report refused messages", lines)
		}
	})
}

// post sends a body to a node's handler.
func post(n *gossiptest.Node, path string, body io.Reader) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	n.Replicator.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, body))
	return w
}

// TestHostileRequests sends invalid requests to each endpoint. They must be refused and have no
// effect.
func TestHostileRequests(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		n := startNode(t, gossiptest.NewMemory(1), gossiptest.NodeConfig{Number: 1})
		for _, path := range []string{"/view/digest", "/view/pull", "/view/push"} {
			for name, body := range map[string][]byte{
				"nothing":         nil,
				"noise":           bytes.Repeat([]byte{0xff}, 5000),
				"20 MB":           make([]byte, 20<<20),
				"another version": message(2, "bourse"),
				"another cluster": message(1, "other"),
				"cut short":       message(1, "bourse", []byte{2, 100, 1}),
			} {
				if w := post(n, path, bytes.NewReader(body)); w.Code != http.StatusBadRequest {
					t.Errorf("%s: %s: status %d", path, name, w.Code)
				}
			}
			strange := message(1, "bourse", frameOf(8, []byte{1}), frameOf(7, nil), frameOf(10, bytes.Repeat([]byte{0xff}, 9)), frameOf(99, []byte("later")))
			if w := post(n, path, bytes.NewReader(strange)); w.Code != http.StatusOK {
				t.Errorf("%s: unknown frames: status %d", path, w.Code)
			}
		}
		for _, query := range []string{"", "?site=w1&epoch=x", "?site=../w1&epoch=1", "?site=w1&epoch=1", "?shared=1"} {
			w := httptest.NewRecorder()
			n.Replicator.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/view/snapshot"+query, nil))
			if w.Code != http.StatusBadRequest { // the header with the hash of the cluster's id is missing
				t.Errorf("snapshot%s: status %d", query, w.Code)
			}
		}
	})
}

// TestTenMegabytes pushes a transaction with a row of 10 MB. That row alone must be quarantined,
// and later transactions must be applied.
func TestTenMegabytes(t *testing.T) {
	t.Parallel()
	gossiptest.Virtual(t, func(t *testing.T) {
		group := startGroup(t, gossiptest.NewMemory(1), 3, gossiptest.NodeConfig{})
		body := message(1, "bourse", frameOf(1, []byte("x1")), frameOf(2, hugeTransaction(t, 10<<20)), frameOf(2, transaction(t, "x1", 2, volumeRow("small"))))
		if w := post(group[0], "/view/push", bytes.NewReader(body)); w.Code != http.StatusOK {
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
		time.Sleep(10 * time.Second) // virtual time
		h := group[0].View.Health()
		if group[0].View.Head(wire.Stream{Site: "x1", Epoch: 7}) != 2 || h.Quarantine.Count != 1 || h.Quarantine.Newest[0].Origin.Site != "x1" {
			t.Errorf("head %d, quarantine %+v", group[0].View.Head(wire.Stream{Site: "x1", Epoch: 7}), h.Quarantine)
		}
		publish(t, group[0], release(1))
		untilHas(t, group, "all members have the later transactions", func(n *gossiptest.Node) bool {
			return n.View.Head(group[0].View.Self().Stream) == group[0].View.Self().Seq
		})
	})
}

// hugeTransaction returns a transaction that is too large for wire.Encode, with a text of n
// bytes. In CBOR, it is {1: site, 2: epoch, 3: seq, 4: at, 5: [h'row'], 6: birth}, signed. The
// row is {1: table, 2: key, 3: {"output": text}}.
func hugeTransaction(t *testing.T, n int) []byte {
	t.Helper()
	text := bytes.Repeat([]byte{'x'}, n)
	row := append([]byte{0xa3, 1, 0x65}, "check"...)
	row = append(append(row, 2, 0x61, 'k', 3, 0xa1, 0x66), "output"...)
	row = append(binary.BigEndian.AppendUint32(append(row, 0x7a), uint32(n)), text...)
	by := strangerSeal(t)
	tx := []byte{0xa6, 1, 0x62, 'x', '1', 2, 7, 3, 1, 4, 1, 5, 0x81}
	tx = append(binary.BigEndian.AppendUint32(append(tx, 0x5a), uint32(len(row))), row...)
	tx = append(append(tx, 6, 0x58, byte(len(by.Birth))), by.Birth...)
	sig, err := by.Key.Sign(nil, append([]byte("bourse view transaction\x00bourse\x00"), tx...), crypto.Hash(0))
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat([]byte{wire.WireVersion, byte(len(sig))}, sig, tx)
}

func untilHas(t *testing.T, group []*gossiptest.Node, what string, ok func(*gossiptest.Node) bool) {
	t.Helper()
	began := time.Now()
	for _, n := range group {
		for !ok(n) {
			if time.Since(began) > time.Minute {
				t.Fatalf("timed out waiting until %s: not true for %s", what, n.ID)
			}
			time.Sleep(20 * time.Millisecond) // virtual time
		}
	}
}

// TestRowsThatDoNotFitTheSchema checks that every member receives the transaction, quarantines
// its rows with an unknown column or table, and applies the others. A frame of an unknown kind
// is ignored.
func TestRowsThatDoNotFitTheSchema(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		group := startGroup(t, gossiptest.NewMemory(1), 4, gossiptest.NodeConfig{})
		odd := volumeRow("odd")
		odd.Columns["color"] = "red"
		frames := [][]byte{
			frameOf(200, []byte("a frame kind of a later release")),
			frameOf(2, transaction(t, "x1", 1, volumeRow("v1"), odd, wire.Row{Table: "holiday", Key: "h1", Columns: map[string]wire.Value{"days": int64(20)}})),
			frameOf(1, []byte("x1")),
		}
		group[0].Replicator.Receive(message(1, "bourse", frames...))
		stream := wire.Stream{Site: "x1", Epoch: 7}
		untilHas(t, group, "all members have the transaction", func(n *gossiptest.Node) bool { return n.View.Head(stream) == 1 })
		untilEqual(t, group, time.Minute)
		if q := group[3].View.Health().Quarantine; q.Count != 2 {
			t.Errorf("in quarantine: %+v", q)
		}
	})
}

// TestLimits fills all slots of an endpoint. The next caller must be refused at once, with a
// Retry-After header, and other endpoints must not be affected.
func TestLimits(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		n := startNode(t, gossiptest.NewMemory(1), gossiptest.NodeConfig{Number: 1, Limits: replication.Limits{Pulls: 2}})
		<-n.Members.Ready()
		h := n.Replicator.Handler()
		slow, end := io.Pipe()
		for range 2 {
			go h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/view/pull", slow))
		}
		synctest.Wait() // until both requests wait for their bodies
		w := post(n, "/view/pull", bytes.NewReader(message(1, "bourse")))
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
			t.Errorf("third request: status %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
		}
		if w := post(n, "/view/digest", bytes.NewReader(message(1, "bourse"))); w.Code != http.StatusOK {
			t.Errorf("another endpoint: status %d", w.Code)
		}
		end.Close()
		synctest.Wait()
		if w := post(n, "/view/pull", bytes.NewReader(message(1, "bourse"))); w.Code != http.StatusOK {
			t.Errorf("after the requests have ended: status %d", w.Code)
		}
		if shed := n.Replicator.Traffic().Refused.Shed; shed != 1 {
			t.Errorf("%d requests were refused", shed)
		}
	})
}

// busy is a Caller whose members answer each call with 429 and a Retry-After header.
type busy struct{ calls []time.Time }

func (b *busy) Call(context.Context, bourse.Member, *http.Request) (*http.Response, error) {
	b.calls = append(b.calls, time.Now())
	return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"7"}}, Body: http.NoBody}, nil
}

// TestRetryAfterIsRespected checks that a member that answers with Retry-After is not called
// again before that time.
func TestRetryAfterIsRespected(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		v, err := view.Open(view.Config{Site: "w1"})
		if err != nil {
			t.Fatal(err)
		}
		b := &busy{}
		r := replication.New(replication.Config{
			View: v, Self: bourse.Member{ID: "w1"}, Caller: b,
			Members: func() []bourse.Member { return []bourse.Member{{ID: "w1"}, {ID: "w2"}} },
		})
		ctx, cancel := context.WithTimeout(t.Context(), 70*time.Second)
		defer cancel()
		done := make(chan error, 2)
		go func() { done <- v.Run(ctx) }()
		go func() { done <- r.Run(ctx) }()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
		if len(b.calls) < 5 || len(b.calls) > 10 {
			t.Errorf("%d calls in 70 s, want one every 7 s", len(b.calls))
		}
		for i, at := range b.calls[1:] {
			if rest := at.Sub(b.calls[i]); rest < 7*time.Second {
				t.Errorf("call %d came after %s", i+1, rest)
			}
		}
	})
}

// liar is a Caller whose members claim to have a stream, but never provide its transactions.
type liar struct{ pulls int }

func (l *liar) Call(_ context.Context, _ bourse.Member, req *http.Request) (*http.Response, error) {
	body := message(1, "bourse")
	switch req.URL.Path {
	case "/view/digest":
		head := append([]byte{7, 9, 2}, "x1"...)       // epoch 7, sequence 9
		head = append(head, 0, 0, 0, 0, 0, 0, 0, 1, 2) // hash and time
		sums := append(bytes.Repeat([]byte{1}, 16), 1) // checksums of heads and shared rows; one stream
		body = message(1, "bourse", frameOf(5, sums), frameOf(6, make([]byte, 1024)), frameOf(4, head))
	case "/view/pull":
		l.pulls++
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(body))}, nil
}

// TestUnsuccessfulRepairsAreListed checks that if no member can provide some data, the data is
// requested less and less often, and is listed as unrepaired.
func TestUnsuccessfulRepairsAreListed(t *testing.T) {
	gossiptest.Virtual(t, func(t *testing.T) {
		v, err := view.Open(view.Config{Site: "w1"})
		if err != nil {
			t.Fatal(err)
		}
		l := &liar{}
		r := replication.New(replication.Config{
			View: v, Self: bourse.Member{ID: "w1"}, Caller: l,
			Members: func() []bourse.Member { return []bourse.Member{{ID: "w1"}, {ID: "w2"}} },
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		done := make(chan error, 2)
		go func() { done <- v.Run(ctx) }()
		go func() { done <- r.Run(ctx) }()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
		if l.pulls < 5 || l.pulls > 30 {
			t.Errorf("%d pulls in an hour", l.pulls)
		}
		got := r.State().Unrepaired
		if len(got) == 0 || got[len(got)-1].What != "x1/7" || got[len(got)-1].Tries < 5 {
			t.Errorf("told: %+v", got)
		}
	})
}
