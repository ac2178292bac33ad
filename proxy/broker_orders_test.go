package proxy

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/bourse-dev/bourse"
)

// TestProxiesAskTheSameBroker checks that all proxies first ask the same broker, in the machine's region, for an app's
// machines, and that they ask different brokers for different apps.
func TestProxiesAskTheSameBroker(t *testing.T) {
	t.Parallel()
	first := map[bourse.WorkerID]int{}
	for app := range 100 {
		var want bourse.WorkerID
		for range 5 {
			brokers := []bourse.Member{
				{ID: "b1", Region: "gru"}, {ID: "b2", Region: "gru"}, {ID: "b3", Region: "gru"}, {ID: "b4", Region: "mad"},
			}
			rand.Shuffle(len(brokers), func(i, j int) { brokers[i], brokers[j] = brokers[j], brokers[i] })
			sortBrokers(brokers, strconv.Itoa(app), "gru")
			if got := brokers[0].ID; want != "" && got != want || brokers[3].ID != "b4" {
				t.Fatalf("app %d: %v, want %s first and b4 last", app, brokers, want)
			}
			want = brokers[0].ID
		}
		first[want]++
	}
	if len(first) != 3 || slices.Max(slices.Collect(maps.Values(first))) > 60 {
		t.Errorf("number of apps for which each broker is asked first: %v", first)
	}
}
