package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// scriptedProgram returns a program whose behavior is determined by the payload.
func scriptedProgram(t testing.TB, protocol bourse.TaskProtocol) *program {
	return newProgramOf(t, protocol, func(w http.ResponseWriter, r *http.Request) {
		switch body, _ := io.ReadAll(r.Body); string(body) {
		case "fail":
			http.Error(w, "failed", http.StatusTeapot)
		case "hang":
			<-r.Context().Done()
		default:
			_, _ = w.Write(body)
		}
	})
}

// tasksLife calls a warm machine in various ways until the daemon dies, and records in reported which results callers
// got.
func (h *host) tasksLife(p *program, orders []*bourse.Order, reported map[bourse.OrderID]string) error {
	ctx, cancel := context.WithTimeout(h.t.Context(), 10*time.Second) // a caller gives up on a dead worker after this time
	defer cancel()
	_, refusal, err := h.claim(ctx, &bourse.Claim{Order: *newOrder(h.t, p.Warmed("script", 2))})
	if err != nil || refusal != nil {
		return errors.Join(err, errCrash)
	}
	for i, order := range orders {
		if i == 3 {
			if _, err := h.cancel(ctx, order.ID); err != nil {
				return err
			}
			continue
		}
		fill, refusal, err := h.claim(ctx, &bourse.Claim{Order: *order})
		if err != nil || refusal != nil {
			return errors.Join(err, errCrash)
		}
		reported[order.ID] = ended(fill.Task)
		if _, again, _ := h.claim(ctx, &bourse.Claim{Order: *order}); again != nil {
			return errCrash
		}
	}
	return h.store.Sync(ctx)
}

func scriptedOrders(t testing.TB) []*bourse.Order {
	payload := func(s string) func(*bourse.Order) { return func(o *bourse.Order) { o.Task.Payload = []byte(s) } }
	return []*bourse.Order{
		call(t, "script", 3, payload("one")), call(t, "script", 10, payload("fail")), call(t, "script", 1, payload("hang"), within(5*time.Millisecond)),
		call(t, "script", 1, payload("canceled")), call(t, "script", 10, payload("last")),
	}
}

// Invariants 4, 5 and 7 for tasks: the daemon dies before and after every commit of a scenario with tasks. After each
// restart, no slot is lost, no task is in progress, and no payload has arrived twice. Repeating an order returns its
// first result, or reports that the task was lost.
func TestADaemonDiesAtEveryCommitOfATask(t *testing.T) {
	for _, protocol := range taskProtocols {
		t.Run(string(protocol), func(t *testing.T) { dieInTasks(t, protocol) })
	}
}

// taskProtocols lists the protocols that programs of warm machines can use.
var taskProtocols = []bourse.TaskProtocol{bourse.TaskHTTP, bourse.TaskFrames}

func dieInTasks(t *testing.T, protocol bourse.TaskProtocol) {
	var commits uint64
	h := newHostDown(t, nil)
	h.start(func(_ store.FaultStage, n uint64) error { commits = n; return nil })
	reported := map[bourse.OrderID]string{}
	if err := h.tasksLife(scriptedProgram(t, protocol), scriptedOrders(t), reported); err != nil || len(reported) != 4 {
		t.Fatalf("the scenario fails even without a crash: %v, %v", err, reported)
	}
	h.crash()
	t.Logf("%d commits", commits)
	if commits < 8 {
		t.Fatalf("the scenario makes only %d commits", commits)
	}
	for n := uint64(2); n <= commits; n++ {
		for _, stage := range []store.FaultStage{store.FaultBefore, store.FaultAfter} {
			t.Run(fmt.Sprintf("commit=%d/stage=%d", n, stage), func(t *testing.T) { dieInTask(t, protocol, stage, n) })
		}
	}
}

func dieInTask(t *testing.T, protocol bourse.TaskProtocol, stage store.FaultStage, n uint64) {
	p := scriptedProgram(t, protocol)
	h := newHostDown(t, nil)
	orders, reported := scriptedOrders(t), map[bourse.OrderID]string{}
	if h.tryStart(crashAt(stage, n)) == nil {
		_ = h.tasksLife(p, orders, reported) // the crash ends the scenario early
		h.crash()
	}
	before := map[bourse.OrderID]int{}
	for _, o := range orders {
		before[o.ID] = p.Times(o.ID)
	}
	h.start(nil)
	if slots, open := h.slots(), h.openTasks(); slots != 0 || len(open) != 0 {
		t.Errorf("left behind: %d slots, tasks %v", slots, open)
	}
	for i, o := range orders {
		fill, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *o})
		now := p.Times(o.ID)
		switch {
		case err != nil:
			t.Errorf("order %d, repeated: %v", i, err)
		case now > 1 || before[o.ID] > 0 && now > before[o.ID]:
			t.Errorf("order %d: its payload arrived %d times before, and now %d times", i, before[o.ID], now)
		case refusal != nil && reported[o.ID] != "":
			t.Errorf("order %d was reported as %s and is now refused: %+v", i, reported[o.ID], refusal)
		case fill != nil && reported[o.ID] != "" && ended(fill.Task) != reported[o.ID] && fill.Task.End != bourse.TaskLost:
			t.Errorf("order %d was reported as %s, and now as %s", i, reported[o.ID], ended(fill.Task))
		case fill != nil && before[o.ID] > 0 && !fill.Repeated:
			t.Errorf("order %d has begun a second time: %+v", i, fill.Task)
		}
	}
	if n := h.slots(); n != 0 {
		t.Errorf("%d slots were not released", n)
	}
	h.verify()
}
