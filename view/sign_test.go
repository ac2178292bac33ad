package view

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

func newTestKey(t testing.TB, role bourse.Role) *wire.Key {
	t.Helper()
	k, err := wire.NewKey(role)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sealOf(k *wire.Key) wire.SigningKey {
	return wire.SigningKey{Cluster: "test", Birth: k.Birth, Key: k.Key}
}

// signedTx returns an encoded transaction of a site, signed with a seal.
func signedTx(t testing.TB, by wire.SigningKey, site bourse.WorkerID, seq uint64, rows ...wire.Row) []byte {
	t.Helper()
	b, err := wire.Encode(&wire.Transaction{Position: wire.Position{Stream: wire.Stream{Site: site, Epoch: 1}, Seq: seq}, At: int64(seq), Rows: rows}, by)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// linked returns the linked transactions of a stream, the first of which contains a birth
// certificate.
func linked(t testing.TB, k *wire.Key, site bourse.WorkerID, n int) [][]byte {
	t.Helper()
	var out [][]byte
	by := sealOf(k)
	for seq := range uint64(n) {
		out = append(out, signedTx(t, by, site, seq+1, volume(fmt.Sprint("v", seq%3), fmt.Sprint(site, seq))))
		by.Birth, by.Prev = nil, wire.Link(out[seq])
	}
	return out
}

// TestForgedTransactionsChangeNothing applies forged transactions and copies among genuine ones,
// in any order. All members that have received the genuine ones must agree, and have no other
// rows.
func TestForgedTransactionsChangeNothing(t *testing.T) {
	owner, thief := newTestKey(t, bourse.RoleBroker), newTestKey(t, bourse.RoleBroker)
	genuine := slices.Concat(linked(t, owner, "w2", 5), linked(t, newTestKey(t, bourse.RoleBroker), "w3", 3))
	want := startMember(t, Config{})
	want.take(genuine...)
	forged := map[string][]byte{}
	for n, b := range genuine[:5] {
		forged[fmt.Sprint("a stranger's ", n)] = signedTx(t, wire.SigningKey{Cluster: "test", Key: thief.Key}, "w2", uint64(n+1), volume("v0", "stolen"))
		forged[fmt.Sprint("a stranger's with a birth ", n)] = signedTx(t, sealOf(thief), "w2", uint64(n+1), volume("v0", "stolen"))
		forged[fmt.Sprint("of another cluster ", n)] = signedTx(t, wire.SigningKey{Cluster: "other", Birth: owner.Birth, Key: owner.Key}, "w2", uint64(n+1))
		forged[fmt.Sprint("with the site's birth ", n)] = signedTx(t, wire.SigningKey{Cluster: "test", Birth: owner.Birth, Key: thief.Key}, "w2", uint64(n+1))
		for _, at := range []int{3, 40, len(b) / 2, len(b) - 1} {
			turned := slices.Clone(b)
			turned[at] ^= 1
			forged[fmt.Sprintf("turned at %d, %d", at, n)] = turned
		}
	}
	names := make([]string, 0, len(forged))
	for name := range forged {
		names = append(names, name)
	}
	slices.Sort(names)
	rapid.Check(t, func(r *rapid.T) {
		m := startMember(t, Config{Site: "w9"})
		defer m.end()
		m.take(genuine[0]) // the first transaction determines the stream's key
		story := slices.Clone(genuine)
		for range rapid.IntRange(1, 20).Draw(r, "forgeries") {
			story = append(story, forged[rapid.SampledFrom(names).Draw(r, "forgery")])
		}
		story = append(story, genuine[rapid.IntRange(0, len(genuine)-1).Draw(r, "copy")])
		story = rapid.Permutation(story).Draw(r, "order")
		if rapid.Bool().Draw(r, "together") {
			m.ApplyAll(story)
		} else {
			for _, b := range story {
				_, _ = m.Apply(b) // the effects are checked below
			}
		}
		m.flush()
		for range genuine { // simulates anti-entropy, which delivers skipped transactions again
			m.ApplyAll(genuine)
			m.flush()
		}
		if d := cmp.Diff(want.Digest(), m.Digest()); d != "" {
			r.Fatalf("another digest (-want +got):\n%s", d)
		}
		if d := cmp.Diff(want.dump(), m.dump()); d != "" {
			r.Fatalf("other rows (-want +got):\n%s", d)
		}
	})
}

// TestForgedIsCounted checks that applying a forged transaction is forbidden, not invalid, and
// does not affect the site.
func TestForgedIsCounted(t *testing.T) {
	m := startMember(t, Config{})
	owner, thief := newTestKey(t, bourse.RoleBroker), newTestKey(t, bourse.RoleBroker)
	genuine := linked(t, owner, "w2", 2)
	m.take(genuine[0])
	if _, err := m.Apply(signedTx(t, sealOf(thief), "w2", 2)); bourse.CodeOf(err) != bourse.CodeForbidden {
		t.Errorf("apply the forged transaction: %v, want %s", err, bourse.CodeForbidden)
	}
	if m.ForgedCount() != 1 || m.Health().Quarantine.Count != 0 {
		t.Errorf("%d forged, quarantine of %d", m.ForgedCount(), m.Health().Quarantine.Count)
	}
	m.take(genuine[1])
	if m.Head(wire.Stream{Site: "w2", Epoch: 1}) != 2 {
		t.Error("the site's own transactions are not accepted anymore")
	}
}

// TestUnprovenTransactionsAreNotRetained checks that, in an unknown stream, only transactions
// with a birth certificate are accepted.
func TestUnprovenTransactionsAreNotRetained(t *testing.T) {
	m := startMember(t, Config{})
	genuine := linked(t, newTestKey(t, bourse.RoleWorker), "w2", 3)
	for range 2 {
		if v, err := m.Apply(genuine[2]); err != nil || v.Outcome != Unverified {
			t.Errorf("third transaction: %v, %v, want outcome %d", v, err, Unverified)
		}
	}
	m.take(genuine...)
	if m.Head(wire.Stream{Site: "w2", Epoch: 1}) != 3 {
		t.Errorf("head %d, want 3", m.Head(wire.Stream{Site: "w2", Epoch: 1}))
	}
}

// TestOneSignatureProvesLinkedTransactions checks that the last signature proves all linked
// transactions. If a link is broken, the transactions before it must be proven by their own
// signatures.
func TestOneSignatureProvesLinkedTransactions(t *testing.T) {
	key := newTestKey(t, bourse.RoleWorker)
	run := linked(t, key, "w2", 100)
	by := wire.SigningKey{Cluster: "test", Birth: key.Birth, Key: newTestKey(t, bourse.RoleWorker).Key} // the signatures are invalid
	vouched := [][]byte{signedTx(t, by, "w2", 1)}
	for seq := uint64(2); seq <= 10; seq++ {
		if by.Birth, by.Prev = nil, wire.Link(vouched[len(vouched)-1]); seq == 10 {
			by.Key = key.Key
		}
		vouched = append(vouched, signedTx(t, by, "w2", seq))
	}
	m := startMember(t, Config{})
	for _, a := range m.ApplyAll(vouched) {
		if a.Err != nil || a.Outcome != Queued {
			t.Fatalf("%v: %v", a.ApplyResult, a.Err)
		}
	}
	// The link also covers the signature, so a signature that is modified in transit is noticed.
	bad := slices.Clone(run)
	bad[50] = slices.Clone(bad[50])
	bad[50][10] ^= 1 // this byte is part of the signature
	m = startMember(t, Config{})
	var forged []uint64
	for _, a := range m.ApplyAll(bad) {
		if bourse.CodeOf(a.Err) == bourse.CodeForbidden {
			forged = append(forged, a.Position.Seq)
		}
	}
	m.flush()
	if !slices.Equal(forged, []uint64{51}) || m.Head(wire.Stream{Site: "w2", Epoch: 1}) != 50 {
		t.Errorf("forged %v, head %d", forged, m.Head(wire.Stream{Site: "w2", Epoch: 1}))
	}
}

// certified returns the row of a proxy whose certificate was issued at a time.
func certified(id bourse.WorkerID, issued time.Time) wire.Row {
	return inventory.CertifiedRow(&inventory.CertifiedMember{ID: id, Role: bourse.RoleProxy, Region: "gru", IssuedAt: issued, ExpiresAt: issued.Add(time.Hour)})
}

// TestWorkersCannotWriteSharedRows checks that workers cannot write apps, secrets, releases,
// canceled orders, servers with certificates or policies.
func TestWorkersCannotWriteSharedRows(t *testing.T) {
	clock := wire.ClockAt(time.Now())
	rows := []wire.Row{
		inventory.CanceledRow("01HZZZZZZZZZZZZZZZZZZZZZZZ", "w1"), inventory.AppRow(bourse.App{Name: "shop", ID: "x", Org: "thief"}), secret("shop/a", "d", 0),
		{Table: wire.TableReleases, Key: "shop/1", Columns: map[string]wire.Value{"version": int64(1)}},
		{Table: wire.TableSecrets, Key: "gone", Deleted: true},
		certified("p1", time.Now()), inventory.PolicyRow(&inventory.Policy{Text: []byte(`{"name":"mine"}`)}), inventory.PolicyGone(&inventory.Policy{Region: "gru"}),
	}
	for i := range rows {
		rows[i].Clock = clock
	}
	m := startMember(t, Config{})
	worker := sealOf(newTestKey(t, bourse.RoleWorker))
	m.take(signedTx(t, worker, "w2", 1, append(rows, volume("v", "x"))...))
	if got := m.dump(); len(got) != 1 || m.Health().Quarantine.Count != len(rows) {
		t.Errorf("rows applied: %v, quarantine of %d", got, m.Health().Quarantine.Count)
	}
	// Anti-entropy and publishing must not allow this either.
	broker := startMember(t, Config{Site: "b1"})
	broker.take(signedTx(t, sealOf(newTestKey(t, bourse.RoleBroker)), "w2", 1, rows...))
	for name, change := range map[string]func(birth *[]byte, w *wire.RowBody){
		"a worker's":        func(birth *[]byte, w *wire.RowBody) { *birth, w.Sig = worker.Birth, signRow(t, worker, w) },
		"without signature": func(_ *[]byte, w *wire.RowBody) { w.Sig = nil },
		"without a birth":   func(_ *[]byte, w *wire.RowBody) { w.Birth = nil },
		"of another site":   func(_ *[]byte, w *wire.RowBody) { w.Site = "w7" },
		"with another time": func(_ *[]byte, w *wire.RowBody) { w.Clock++ },
		"about another":     func(_ *[]byte, w *wire.RowBody) { w.Key += "x" },
	} {
		other := startMember(t, Config{})
		if err := other.RestoreShared(t.Context(), bytes.NewReader(rewritten(t, broker, change))); err != nil {
			t.Fatal(err)
		}
		if got := other.dump(); len(got) != 0 || other.ForgedCount() != uint64(len(rows)) {
			t.Errorf("%s: rows applied: %v, %d forged", name, got, other.ForgedCount())
		}
		other.sound()
	}
	own := startMember(t, Config{Role: bourse.RoleWorker})
	if _, err := own.Publish(t.Context(), secret("shop/a", "d", 0)); bourse.CodeOf(err) != bourse.CodeForbidden {
		t.Errorf("a worker publishes a secret: %v, want %s", err, bourse.CodeForbidden)
	}
}

// TestProxiesCannotWrite checks that proxies cannot write rows of any kind, not even through
// anti-entropy.
func TestProxiesCannotWrite(t *testing.T) {
	t.Parallel()
	m := startMember(t, Config{})
	proxy := sealOf(newTestKey(t, bourse.RoleProxy))
	forged := certified("p9", time.Now())
	forged.Clock = wire.ClockAt(time.Now())
	rows := []wire.Row{volume("v", "x"), {Table: wire.TableWorkers, Key: "p1"}, {Table: "later", Key: "k"}, forged}
	m.take(signedTx(t, proxy, "p1", 1, rows...))
	if got := m.dump(); len(got) != 0 || m.Health().Quarantine.Count != len(rows) {
		t.Errorf("rows applied: %v, quarantine of %d", got, m.Health().Quarantine.Count)
	}
	own := startMember(t, Config{Site: "p2", Role: bourse.RoleProxy})
	for _, row := range []wire.Row{volume("v", "x"), secret("shop/a", "d", 0), certified("p9", time.Now())} {
		if _, err := own.Publish(t.Context(), row); bourse.CodeOf(err) != bourse.CodeForbidden {
			t.Errorf("a proxy publishes a row of %s: %v, want %s", row.Table, err, bourse.CodeForbidden)
		}
	}
}

func signRow(t testing.TB, by wire.SigningKey, w *wire.RowBody) []byte {
	t.Helper()
	sig, err := wire.Sign(by.Key, wire.Message(wire.SignedRow, by.Cluster, new(wire.Hasher).Encode(w.Row().Version(bourse.WorkerID(w.Site)))))
	if err != nil {
		t.Fatal(err)
	}
	return sig
}

// rewritten returns a member's snapshot of shared rows after modifying each of the rows.
func rewritten(t testing.TB, from *member, change func(birth *[]byte, w *wire.RowBody)) []byte {
	t.Helper()
	var b, out bytes.Buffer
	if err := from.SharedSnapshot(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	sp, err := wire.Receive(t.Context(), from.Path(), &b, func(wire.SnapshotHead) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	f, err := wire.NewFrameWriter(&out, sp.Head)
	if err != nil {
		t.Fatal(err)
	}
	err = sp.Rows(func(_ []byte, w wire.RowBody, _ error) error {
		birth := sp.Births[string(w.Birth)]
		change(&birth, &w)
		if w.Birth != nil {
			w.Birth = wire.BirthID(birth)
		}
		if err := f.Birth(birth); err != nil {
			return err
		}
		return f.Row(w)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errorsOf(f.Close(), sp.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func errorsOf(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestSharedRowsProveThemselves checks that a broker's row is accepted from any member, even if
// the recipient has never heard of the broker.
func TestSharedRowsProveThemselves(t *testing.T) {
	broker := startMember(t, Config{Site: "b1"})
	broker.publish(inventory.AppRow(bourse.App{Name: "shop", ID: "x", Org: "acme", CreatedAt: time.Now()}), secret("shop/a", "d", 0))
	broker.publish(wire.DeletedRow(wire.TableSecrets, "shop/a"))
	at := []*member{broker, startMember(t, Config{Site: "w1", Role: bourse.RoleWorker}), startMember(t, Config{Site: "w2", Path: tempFile(t), Role: bourse.RoleWorker})}
	for i, m := range at[1:] {
		var b bytes.Buffer
		if err := at[i].SharedSnapshot(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if err := m.RestoreShared(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(broker.dump(), m.dump()); d != "" || m.ForgedCount() != 0 {
			t.Errorf("rows of %s (%d forged):\n%s", m.config.Site, m.ForgedCount(), d)
		}
		m.sound()
	}
}

// TestKeyOfASite checks that a site without a certificate creates its own key, in a file that
// only its user can read, and reuses it. If the key changes, the site starts a new epoch.
func TestKeyOfASite(t *testing.T) {
	path := tempFile(t)
	m := startMember(t, Config{Path: path})
	m.publish(volume("v", "x"))
	first := m.Self()
	info, err := os.Stat(path + wire.KeySuffix)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the site's key: %v, %v", info, err)
	}
	again := func() wire.Position {
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
		m = startMember(t, Config{Path: path})
		return m.Self()
	}
	if p := again(); p != first {
		t.Errorf("with the same key, the site is at %v, previously at %v", p, first)
	}
	write(t, path+wire.KeySuffix, []byte("no key"))
	if p := again(); p.Epoch <= first.Epoch || p.Seq != 0 || len(m.dump()) != 0 {
		t.Errorf("with another key, the site is at %v, previously at %v, with %v", p, first, m.dump())
	}
}

// TestSignWithEveryKindOfKey checks that all kinds of keys that certificates support can sign,
// and that only valid signatures are accepted.
func TestSignWithEveryKindOfKey(t *testing.T) {
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r2048, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []crypto.Signer{p256, r2048, testKey.Key} {
		sig, err := wire.Sign(key, []byte("a"))
		if err != nil {
			t.Fatal(err)
		}
		if !wire.Verify(key.Public(), []byte("a"), sig) || wire.Verify(key.Public(), []byte("b"), sig) || wire.Verify(key.Public(), []byte("a"), sig[1:]) || wire.Verify(nil, []byte("a"), sig) {
			t.Errorf("%T: the signature is not checked", key)
		}
	}
}

// FuzzBirth reads arbitrary birth certificates.
func FuzzBirth(f *testing.F) {
	f.Add(testKey.Birth)
	f.Add([]byte(wire.KeyBirth))
	f.Fuzz(func(t *testing.T, b []byte) {
		site, role, key, err := testKey.Author(b, time.Time{})
		if err == nil && (site != "" || bourse.WorkerID(role).Validate() != nil || wire.Verify(key, nil, nil)) {
			t.Errorf("read as %q, %q", site, role)
		}
	})
}
