package wire

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

// anyVersion draws a version of a row. It draws from few values, so that versions often have
// equal parts.
func anyVersion(t *rapid.T, table string) Version {
	small := rapid.Int64Range(0, 2)
	r := Version{
		Table: table, Key: "k", Shared: true, Clock: Clock(1 + small.Draw(t, "clock")),
		Stamp: Stamp{Position: Position{Stream{bourse.WorkerID(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "site")), 1}, 1 + uint64(small.Draw(t, "seq"))}},
	}
	if table == TableApps {
		r.Columns = Columns{
			{"created_at", small.Draw(t, "created_at")},
			{"id", rapid.SampledFrom([]string{"x", "y"}).Draw(t, "id")},
			{"generation", small.Draw(t, "generation")},
			{"org", rapid.SampledFrom([]string{"o", "p"}).Draw(t, "org")},
		}
		if rapid.Bool().Draw(t, "deleted") {
			r.Columns = Columns{{"created_at", r.Columns[0].Value}, {"deleted_at", small.Draw(t, "deleted_at")}, r.Columns[1], r.Columns[2], r.Columns[3]}
		}
	} else if at, ok := revocation[table]; ok {
		r.Columns = Columns{{"org", rapid.SampledFrom([]string{"o", "p"}).Draw(t, "org")}}
		if rapid.Bool().Draw(t, "revoked") {
			r.Columns = append(r.Columns, Column{at, 1 + small.Draw(t, at)})
		}
	} else if table == TableCertified {
		r.Columns = Columns{{"issued_at", small.Draw(t, "issued_at")}}
	} else if r.Deleted = rapid.Bool().Draw(t, "deleted"); !r.Deleted {
		r.Columns = Columns{{"digest", rapid.SampledFrom([]string{"x", "y"}).Draw(t, "digest")}}
	}
	r.Hash = new(Hasher).Of(r)
	return r
}

func TestMergeIsASemilattice(t *testing.T) {
	same := func(t *rapid.T, law string, x, y Version) {
		t.Helper()
		if d := cmp.Diff(x, y, cmp.AllowUnexported(Version{}, Stamp{}, Column{}, Proof{})); d != "" {
			t.Fatalf("%s: %s", law, d)
		}
	}
	for _, table := range []string{TableSecrets, TableApps, TableTokens, TableWireGuard, TableCertified} {
		t.Run(table, rapid.MakeCheck(func(t *rapid.T) {
			a, b, c := anyVersion(t, table), anyVersion(t, table), anyVersion(t, table)
			same(t, "commutative", merge(a, b), merge(b, a))
			same(t, "associative", merge(merge(a, b), c), merge(a, merge(b, c)))
			same(t, "idempotent", merge(a, a), a)
			same(t, "a second merge changes nothing", merge(merge(a, b), b), merge(a, b))
			if Order(a, b) != -Order(b, a) {
				t.Fatalf("order is not antisymmetric: %d and %d", Order(a, b), Order(b, a))
			}
		}))
	}
}

func TestAppsMergeLikeAppMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyVersion(t, TableApps), anyVersion(t, TableApps)
		x, y := appOf(a), appOf(b)
		if d := cmp.Diff(x.Merge(y), appOf(merge(a, b))); d != "" {
			t.Fatalf("App.Merge has another result: %s", d)
		}
	})
}

func TestLastWriterWins(t *testing.T) {
	at := func(clock Clock, site bourse.WorkerID, deleted bool) Version {
		return Version{Table: TableSecrets, Key: "k", Shared: true, Clock: clock, Deleted: deleted, Stamp: Stamp{Position: Position{Stream{site, 1}, 1}}}
	}
	for name, c := range map[string]struct{ lost, stands Version }{
		"later":                    {at(1, "b", false), at(2, "a", false)},
		"a deletion is a version":  {at(1, "a", false), at(2, "a", true)},
		"a deletion can be undone": {at(1, "a", true), at(2, "a", false)},
		"the site id breaks ties":  {at(1, "a", false), at(1, "b", false)},
	} {
		if got := merge(c.lost, c.stands); Order(got, c.stands) != 0 {
			t.Errorf("%s: %+v wins", name, got)
		}
	}
}

// revocation contains the tables whose rows can be revoked, and the column that is then set.
var revocation = map[string]string{TableTokens: "revoked_at", TableWireGuard: "removed_at"}

// TestRevokedWins checks that a revoked token stays revoked and a removed laptop stays removed, whichever broker's clock
// is ahead and whatever another version permits.
func TestRevokedWins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := rapid.SampledFrom(slices.Sorted(maps.Keys(revocation))).Draw(t, "table")
		a, b := anyVersion(t, table), anyVersion(t, table)
		if got := merge(a, b); revokedRank(got) != max(revokedRank(a), revokedRank(b)) {
			t.Fatalf("of %v and %v, %v wins", a, b, got)
		}
		if revokedRank(a) == revokedRank(b) && a.Clock < b.Clock && merge(a, b).Clock != a.Clock {
			t.Fatalf("%v was changed to %v", a, b)
		}
	})
}

// TestTheNewerCertificateWins checks that a broker that still sees a server's earlier certificate
// does not replace the newer one, whichever broker's clock is ahead.
func TestTheNewerCertificateWins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyVersion(t, TableCertified), anyVersion(t, TableCertified)
		issued := func(r Version) int64 { return intOf(r.Columns.Get("issued_at")) }
		if got := merge(a, b); issued(got) != max(issued(a), issued(b)) {
			t.Fatalf("of %v and %v, %v wins", a, b, got)
		}
	})
}
