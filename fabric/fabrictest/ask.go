package fabrictest

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// quoting returns a handler that answers each order with a quote from the given worker.
func quoting(as bourse.WorkerID) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var o bourse.Order
		if err := fabric.ReadBody(w, r, &o); err != nil {
			fabric.WriteFailure(w, err)
			return
		}
		fabric.WriteBody(w, bourse.Quote{Worker: as, Region: "gru", AppMachines: len(o.Name)})
	})
}

func saying(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
}

func testAsk(t *testing.T, n Network) {
	silent := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	dead := n.Serve("dead", never(t))
	dead.Kill()
	members := []bourse.Member{
		n.Serve("good-1", quoting("good-1")).Member,
		n.Serve("silent", silent).Member,
		dead.Member,
		n.Serve("garbage", saying("<html>")).Member,
		n.Serve("half", saying(`{"worker":"half","region":`)).Member,
		n.Serve("twice", saying(`{"worker":"twice"}{"worker":"twice"}`)).Member,
		n.Serve("endless", saying(strings.Repeat(" ", fabric.MaxBody)+`{"worker":"endless"}`)).Member,
		n.Serve("liar", quoting("good-1")).Member,
		n.Serve("negative", saying(`{"worker":"negative","takes":[{"resource":"cpu","amount":-1}]}`)).Member,
		n.Serve("failing", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fabric.WriteFailure(w, bourse.Errorf(bourse.CodeInternal, "broken"))
		})).Member,
		n.Serve("good-2", quoting("good-2")).Member,
	}
	for range 2 { // the second round uses existing connections
		askRound(t, n, members)
	}
}

// lateAnswers is how long to wait for further answers once all valid ones have arrived.
const lateAnswers = 500 * time.Millisecond

// askRound requests quotes from members. Two of the members return valid quotes.
func askRound(t *testing.T, n Network, members []bourse.Member) {
	ctx, cancel := context.WithCancel(soon(t))
	defer cancel()
	var got []bourse.WorkerID
	var inside, returned atomic.Bool
	n.Fabric().Ask(ctx, members, &bourse.Order{Name: "four"}, func(q bourse.Quote) {
		if inside.Swap(true) || returned.Load() {
			t.Error("Ask called answer during another call or after returning")
		}
		if q.AppMachines != 4 {
			t.Errorf("worker %s: got a quote with %d app machines, want 4, the length of the order's name", q.Worker, q.AppMachines)
		}
		if got = append(got, q.Worker); len(got) == 2 {
			time.AfterFunc(lateAnswers, cancel)
		}
		inside.Store(false)
	})
	returned.Store(true)
	slices.Sort(got)
	if d := cmp.Diff([]bourse.WorkerID{"good-1", "good-2"}, got); d != "" {
		t.Errorf("quotes (-want +got):\n%s", d)
	}
}

func testAskEnds(t *testing.T, n Network) {
	var members []bourse.Member
	for _, id := range []bourse.WorkerID{"w1", "w2", "w3"} {
		members = append(members, n.Serve(id, quoting(id)).Member)
	}
	ctx := soon(t)
	for range 20 {
		got := 0
		n.Fabric().Ask(ctx, members, &bourse.Order{}, func(bourse.Quote) { got++ })
		if got != len(members) {
			t.Fatalf("%d workers answered, want %d", got, len(members))
		}
	}
	if ctx.Err() != nil {
		t.Error("Ask returned at its deadline, want as soon as all workers had answered")
	}
}

func testAskNobody(t *testing.T, n Network) {
	n.Fabric().Ask(soon(t), nil, &bourse.Order{}, func(q bourse.Quote) { t.Errorf("got quote %+v, want none", q) })
}
