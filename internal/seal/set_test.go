package seal_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse/internal/seal"
)

// TestVersionsGrowAndAreUnique has brokers with different clocks change an app's secrets. They receive each other's
// changes in any order, or never.
func TestVersionsGrowAndAreUnique(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type broker struct {
			marks seal.Marks
			skew  time.Duration
		}
		brokers := make([]broker, rapid.IntRange(2, 4).Draw(t, "brokers"))
		for i := range brokers {
			brokers[i] = broker{seal.Marks{}, time.Duration(rapid.IntRange(-5, 5).Draw(t, "skew")) * time.Second}
		}
		now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
		var given []uint64
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "ms")) * time.Millisecond)
			i := rapid.IntRange(0, len(brokers)-1).Draw(t, "at")
			b := brokers[i]
			if rapid.Bool().Draw(t, "hears") {
				for _, m := range brokers[rapid.IntRange(0, len(brokers)-1).Draw(t, "of")].marks {
					b.marks.Add(m)
				}
				continue
			}
			before := b.marks.Version()
			next := b.marks.Next(seal.Writer(i), now.Add(b.skew))
			if next.Version <= before || slices.Contains(given, next.Version) || next.Version >= 1<<53 {
				t.Fatalf("got version %d, want a new one greater than %d; earlier versions: %v", next.Version, before, given)
			}
			given = append(given, next.Version)
			b.marks.Add(next)
			if !b.marks.Has(next.Version) {
				t.Fatalf("the broker that created version %d does not have it", next.Version)
			}
		}
	})
}

// A version includes the versions that its broker knew when it created the version.
func TestVersionRequiresEarlierVersions(t *testing.T) {
	now := time.Now()
	one := seal.Marks{}
	first := one.Next(1, now)
	one.Add(first)
	second := one.Next(2, now)
	worker := seal.Marks{}
	worker.Add(second)
	if worker.Has(second.Version) || worker.Has(first.Version) {
		t.Error("the second broker's change alone counts as both changes")
	}
	worker.Add(first)
	if !worker.Has(second.Version) || !worker.Has(first.Version) || worker.Version() != second.Version {
		t.Error("both changes together are not sufficient")
	}
	if !worker.Has(0) || !worker.Has(57) || !(seal.Marks{}).Has(57) {
		t.Error("a version from another system does not count as present")
	}
	if worker.Has(second.Version + 1024) {
		t.Error("a version that nobody created counts as present")
	}
}

func FuzzReadMark(f *testing.F) {
	f.Add(uint64(1<<50), []byte(`{"3":7}`))
	f.Add(uint64(0), []byte(`{`))
	f.Fuzz(func(_ *testing.T, version uint64, seen []byte) {
		if m, ok := seal.ReadMark(version, seen); ok {
			marks := seal.Marks{}
			marks.Add(m)
			marks.Has(version)
			marks.Next(1, time.Unix(0, 0))
		}
	})
}
