package nats

import (
	"context"
	"net/http"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// Fabric implements [fabric.Fabric] for clusters where some or all servers are on NATS. Calls and requests use the
// link's connections for servers on NATS, and direct connections for all others; Caller tells them apart by their
// addresses. If all workers in a region are asked for quotes, Ask sends only one message to the region.
type Fabric struct {
	Caller fabric.Fabric // required; must use Link.Dial for addresses on NATS
	Link   *Link         // required
	// WorkerCount returns the number of workers in a region, as far as this server knows. If WorkerCount is nil, the
	// number is unknown, and Ask sends each worker its own message.
	WorkerCount func(bourse.Region) int
	// ConnectionsOnly makes Ask use only Caller's connections, which authenticate the server at the
	// other end.
	ConnectionsOnly bool
}

var _ fabric.Fabric = (*Fabric)(nil)

// Ask implements [fabric.Fabric].
func (f *Fabric) Ask(ctx context.Context, to []bourse.Member, order *bourse.Order, answer func(bourse.Quote)) {
	here, elsewhere := f.split(to)
	if len(here) == 0 {
		f.Caller.Ask(ctx, to, order, answer)
		return
	}
	body, err := fabric.EncodeOrder(order)
	if err != nil {
		return // no quotes for an order that cannot be encoded
	}
	var mu sync.Mutex
	one := func(q bourse.Quote) {
		mu.Lock()
		defer mu.Unlock()
		answer(q)
	}
	var wg sync.WaitGroup
	if len(elsewhere) > 0 {
		wg.Go(func() { f.Caller.Ask(ctx, elsewhere, order, one) })
	}
	if !f.Link.ask(ctx, here, f.completeRegions(here), body, one) {
		f.Caller.Ask(ctx, here, order, one)
	}
	wg.Wait()
}

// split returns the members on NATS (here) and all others (elsewhere). If ConnectionsOnly is set, here is empty.
func (f *Fabric) split(to []bourse.Member) (here, elsewhere []bourse.Member) {
	if f.ConnectionsOnly {
		return nil, to
	}
	for _, m := range to {
		if IsAddress(m.Address) {
			here = append(here, m)
		} else {
			elsewhere = append(elsewhere, m)
		}
	}
	return here, elsewhere
}

// completeRegions returns the regions whose known workers are all in the list.
func (f *Fabric) completeRegions(to []bourse.Member) map[bourse.Region]bool {
	if f.WorkerCount == nil {
		return nil
	}
	count := map[bourse.Region]int{}
	for i := range to {
		count[to[i].Region]++
	}
	out := make(map[bourse.Region]bool, len(count))
	for region, n := range count {
		out[region] = n > 1 && region.Validate() == nil && n >= f.WorkerCount(region)
	}
	return out
}

// Call implements [fabric.Fabric].
func (f *Fabric) Call(ctx context.Context, to bourse.Member, req *http.Request) (*http.Response, error) {
	return f.Caller.Call(ctx, to, req)
}

// Send implements [fabric.Fabric].
func (f *Fabric) Send(ctx context.Context, to bourse.Member, m *fabric.Message) (fabric.Answer, error) {
	return f.Caller.Send(ctx, to, m)
}
