package worker

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

func TestAWarmTaskIsAnswered(t *testing.T) {
	p := newProgram(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if _, err := time.Parse(time.RFC3339Nano, r.Header.Get("Bourse-Deadline")); err != nil || r.Method != http.MethodPost || r.URL.Path != "/" {
			t.Errorf("%s %s, deadline %v", r.Method, r.URL, err)
		}
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = w.Write([]byte("got " + string(body)))
	})
	h := newHost(t, nil)
	m := h.place(p.Warmed("echo", 1))
	order := call(t, "echo", 3, func(o *bourse.Order) { o.Task.Type = "text/plain" })
	q, err := h.quote(t.Context(), order.ForQuote())
	if err != nil || q.Refusal != nil || q.Takes.Of("slots") != 3 || q.Takes.Of("task echo") != 1 {
		t.Fatalf("quote %+v, refusal %+v, %v", q, q.Refusal, err)
	}
	got := h.result(t.Context(), order)
	if ended(got) != "answered 0 got payload" || got.Type != "text/plain" || got.Machine != m.ID || got.Worker != "w1" || got.Took <= 0 || got.Status != 200 {
		t.Errorf("got %+v", got)
	}
	if n := h.slots(); n != 0 {
		t.Errorf("%d slots are still taken after the task's end", n)
	}
	d, err := h.decision(t.Context(), order.ID)
	if err != nil || d.Machine != m.ID || d.Outcome != bourse.OutcomeFilled {
		t.Errorf("decision %+v, %v", d, err)
	}
	h.verify()
}

// If a program does not answer properly, the result explains what happened.
func TestProgramsThatDoNotAnswer(t *testing.T) {
	hang := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		want  string
		text  string
	}{
		"hangs":      {hang, "timeout -1 ", "stopped after its timeout of 50ms"},
		"says no":    {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such thing", 404) }, "failed 1 no such thing\n", "status 404"},
		"breaks off": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "broken -1 ", "EOF"},
		"dies in the middle": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("half"))
			panic(http.ErrAbortHandler)
		}, "broken -1 ", "EOF"},
		"answers 10 MB": {func(w http.ResponseWriter, _ *http.Request) {
			for range 10 {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}, "broken -1 ", "more than 1048576 bytes"},
		"talks nonsense": {func(w http.ResponseWriter, _ *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			_, _ = c.Write([]byte("\x00\x01\x02\r\n\r\n"))
			_ = c.Close()
		}, "broken -1 ", "malformed"},
		"has an endless header": {func(w http.ResponseWriter, _ *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 1<<20)))
			_ = c.Close()
		}, "broken -1 ", "did not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProgram(t, c.serve)
			h := newHost(t, nil)
			h.place(p.Warmed("bad", 1))
			limit := 30 * time.Second
			if name == "hangs" {
				limit = 50 * time.Millisecond
			}
			got := h.result(t.Context(), call(t, "bad", 2, within(limit)))
			if ended(got) != c.want || !strings.Contains(got.Error, c.text) {
				t.Errorf("got %s: %s, want %s: … %s", ended(got), got.Error, c.want, c.text)
			}
			if n := h.slots(); n != 0 {
				t.Errorf("%d slots were not released", n)
			}
			<-p.Left                                                 // the program notices that its request has ended
			h.result(t.Context(), call(t, "bad", 10, within(limit))) // the place on the machine is free again
			h.verify()
		})
	}
}

// If a machine's own time limit is shorter than the order's, it applies.
func TestAMachinesLimitOfItsTask(t *testing.T) {
	p := newProgram(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	h := newHost(t, nil)
	h.place(p.Warmed("slow", 1), func(o *bourse.Order) { o.Config.Task.Timeout = bourse.Duration(30 * time.Millisecond) })
	if got := h.result(t.Context(), call(t, "slow", 0, within(time.Minute))); got.End != bourse.TaskTimeout || got.Took > 20*time.Second {
		t.Errorf("got %+v", got)
	}
}

func TestRefusalsOfTasks(t *testing.T) {
	release := make(chan struct{})
	p := newProgram(t, func(http.ResponseWriter, *http.Request) { <-release })
	h := newHost(t, nil)
	m := h.place(p.Warmed("one", 1))
	h.place(p.Warmed("many", 100))
	var group sync.WaitGroup
	for _, name := range []string{"one", "many"} {
		order := call(t, name, 4)
		group.Go(func() { _, _, _ = h.claim(context.WithoutCancel(t.Context()), &bourse.Claim{Order: *order}) })
	}
	<-p.Arrived
	<-p.Arrived
	for name, c := range map[string]struct {
		order *bourse.Order
		want  bourse.Refusal
	}{
		"no place": {call(t, "one", 1), bourse.Refusal{Reason: bourse.RefusedResource, Resource: "task one", Wanted: 1}},
		"no slots": {call(t, "many", 3), bourse.Refusal{Reason: bourse.RefusedResource, Resource: "slots", Wanted: 3, Free: 2}},
		"nobody":   {call(t, "other", 1), bourse.Refusal{Reason: bourse.RefusedUnknown, Resource: "task other", Wanted: 1}},
		"no resource": {
			call(t, "many", 1, func(o *bourse.Order) { o.Config.Requirements["licenses"] = bourse.Requirement{Count: 1} }),
			bourse.Refusal{Reason: bourse.RefusedUnknown, Resource: "licenses", Wanted: 1},
		},
		"no label": {
			call(t, "many", 1, func(o *bourse.Order) { o.Config.Requirements["zone"] = bourse.Requirement{Label: "b"} }),
			bourse.Refusal{Reason: bourse.RefusedUnknown, Resource: "zone"},
		},
		"another region": {call(t, "many", 1, func(o *bourse.Order) { o.Regions = []bourse.Choice{{"mad"}} }), bourse.Refusal{Reason: bourse.RefusedRegion}},
		"another app":    {call(t, "many", 1, func(o *bourse.Order) { o.App = bourse.App{Name: "blog", ID: "02"} }), bourse.Refusal{Reason: bourse.RefusedUnknown, Resource: "task many", Wanted: 1}},
		"a machine's id": {call(t, "many", 1, func(o *bourse.Order) { o.ID = m.Order }), bourse.Refusal{Reason: bourse.RefusedCanceled}},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := h.quote(t.Context(), c.order.ForQuote())
			_, claimed, err2 := h.claim(t.Context(), &bourse.Claim{Order: *c.order})
			for _, got := range []*bourse.Refusal{q.Refusal, claimed} {
				if err != nil || err2 != nil || got == nil {
					t.Fatalf("refusal %+v, %v, %v", got, err, err2)
				}
				if got.Detail == "" || got.Worker != "w1" || got.Region != "gru" {
					t.Errorf("unexpected worker or detail in the refusal: %+v", got)
				}
				c.want.Worker, c.want.Region, c.want.Detail = "w1", "gru", got.Detail
				if got.Also != nil || got.Reason != c.want.Reason || got.Resource != c.want.Resource || got.Wanted != c.want.Wanted || got.Free != c.want.Free {
					t.Errorf("got %+v, want %+v", got, c.want)
				}
			}
		})
	}
	close(release)
	group.Wait()
	h.must(h.stop2(m.ID))
	if q, err := h.quote(t.Context(), call(t, "one", 0).ForQuote()); err != nil || q.Refusal == nil || q.Refusal.Reason != bourse.RefusedUnknown {
		t.Errorf("with a stopped machine: %+v, %v", q.Refusal, err)
	}
	if _, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *newOrder(t, func(o *bourse.Order) { o.ID = done(t, h, p).ID })}); err != nil || refusal == nil {
		t.Errorf("order for a machine with a task's order id: %+v, %v", refusal, err)
	}
}

// A task is refused if its app was deleted, or if another attempt at its order has asked this worker since.
func TestATaskIsRefusedAsOtherOrders(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*host, *bourse.Order) error
		reason  bourse.RefusalReason
	}{
		"deleted": {func(h *host, o *bourse.Order) error {
			gone := o.App
			gone.DeletedAt = new(time.Now().UTC())
			return h.store.Update(t.Context(), func(tx *store.Tx) error { return state.MergeApp(tx, gone) })
		}, bourse.RefusedApp},
		"superseded": {func(h *host, o *bourse.Order) error {
			later := *o.ForQuote()
			o.Try, later.Try = "one", "two"
			_, err := h.quote(t.Context(), &later)
			return err
		}, bourse.RefusedSuperseded},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProgram(t, nil)
			h := newHost(t, nil)
			h.place(p.Warmed("one", 1))
			order := call(t, "one", 1)
			if err := c.prepare(h, order); err != nil {
				t.Fatal(err)
			}
			_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
			if err != nil || refusal == nil || refusal.Reason != c.reason || p.Calls.Load() != 0 {
				t.Errorf("claim: refusal %+v, error %v, %d calls; want %s", refusal, err, p.Calls.Load(), c.reason)
			}
			if n, open := h.slots(), h.openTasks(); n != 0 || len(open) != 0 {
				t.Errorf("left behind: %d slots, tasks %v", n, open)
			}
			if c.reason == bourse.RefusedSuperseded { // the quote would make this attempt the latest one
				return
			}
			if q, err := h.quote(t.Context(), order.ForQuote()); err != nil || q.Refusal == nil || q.Refusal.Reason != c.reason {
				t.Errorf("quote: refusal %+v, error %v; want %s", q.Refusal, err, c.reason)
			}
		})
	}
}

// stop2 stops a machine and waits until it has stopped.
func (h *host) stop2(id bourse.MachineID) (fabric.ActReply, error) {
	reply, err := h.machines.Stop(h.t.Context(), id, fabric.MachineAction{})
	if err == nil {
		h.reaches(id, bourse.StateStopped)
	}
	return reply, err
}

// done returns the order of a task that has ended.
func done(t *testing.T, h *host, _ *program) *bourse.Order {
	t.Helper()
	order := call(t, "many", 0)
	h.result(t.Context(), order)
	return order
}

// If the caller disconnects or the order is canceled, the program notices that its
// request has ended, and repeating the order returns the canceled result.
func TestATaskEndsWithItsCaller(t *testing.T) {
	for _, protocol := range taskProtocols {
		t.Run(string(protocol), func(t *testing.T) { cutWithItsCaller(t, protocol) })
	}
}

func cutWithItsCaller(t *testing.T, protocol bourse.TaskProtocol) {
	for name, end := range map[string]func(*host, *bourse.Order, context.CancelFunc){
		"left": func(_ *host, _ *bourse.Order, leave context.CancelFunc) { leave() },
		"canceled": func(h *host, o *bourse.Order, _ context.CancelFunc) {
			if _, err := h.cancel(h.t.Context(), o.ID); err != nil {
				h.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			arrived, cut := make(chan struct{}), make(chan struct{})
			p := newProgramOf(t, protocol, func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				close(arrived)
				<-r.Context().Done()
				close(cut)
			})
			h := newHost(t, nil)
			h.place(p.Warmed("slow", 1))
			order := call(t, "slow", 1)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			ended := make(chan *bourse.Fill, 1)
			go func() {
				fill, _, _ := h.claim(ctx, &bourse.Claim{Order: *order})
				ended <- fill
			}()
			<-arrived
			end(h, order, leave)
			<-cut
			if fill := <-ended; fill == nil || fill.Task.End != bourse.TaskCanceled {
				t.Errorf("the claim ended with %+v", fill)
			}
			if got := h.result(t.Context(), order); got.End != bourse.TaskCanceled || p.Calls.Load() != 1 {
				t.Errorf("repeated: %+v, %d calls", got, p.Calls.Load())
			}
			if n := h.slots(); n != 0 {
				t.Errorf("%d slots were not released", n)
			}
			h.verify()
		})
	}
}

// If an order is canceled before its task begins, the task is refused.
func TestACanceledTaskDoesNotBegin(t *testing.T) {
	p := newProgram(t, nil)
	h := newHost(t, nil)
	h.place(p.Warmed("echo", 1))
	order := call(t, "echo", 1)
	if _, err := h.cancel(t.Context(), order.ID); err != nil {
		t.Fatal(err)
	}
	_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
	if err != nil || refusal == nil || refusal.Reason != bourse.RefusedCanceled || p.Calls.Load() != 0 {
		t.Errorf("refusal %+v, %v, %d calls", refusal, err, p.Calls.Load())
	}
}
