package nats

import (
	"context"
	"net/http"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// Fabric is the fabric of a cluster of which some or all servers are on NATS.
// Calls and requests to those go over the link's connections, to the others as
// they always did: Caller knows both ways by the address. Orders are put to those
// on NATS with one message where that can be done.
type Fabric struct {
	Caller fabric.Fabric // required; it dials places of the link with Link.Dial
	Link   *Link         // required
	// Population returns how many workers of a region others know; nil: it
	// is not known, and each is asked by a message of its own.
	Population func(bourse.Region) int
	// Private sends everything over the caller's connections: those prove to
	// which server they lead to.
	Private bool
}

var _ fabric.Fabric = (*Fabric)(nil)

// Ask puts an order to many workers side by side; see [fabric.Fabric].
func (f *Fabric) Ask(ctx context.Context, to []bourse.Member, order *bourse.Order, answer func(bourse.Quote)) {
	here, elsewhere := f.split(to)
	if len(here) == 0 {
		f.Caller.Ask(ctx, to, order, answer)
		return
	}
	body, err := fabric.EncodeOrder(order)
	if err != nil {
		return // an order that cannot be written down has no answers
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
	if !f.Link.ask(ctx, here, f.whole(here), body, one) {
		f.Caller.Ask(ctx, here, order, one)
	}
	wg.Wait()
}

// split separates those on NATS from the others.
func (f *Fabric) split(to []bourse.Member) (here, elsewhere []bourse.Member) {
	if f.Private {
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

// whole returns the regions of which all workers are asked.
func (f *Fabric) whole(to []bourse.Member) map[bourse.Region]bool {
	if f.Population == nil {
		return nil
	}
	count := map[bourse.Region]int{}
	for i := range to {
		count[to[i].Region]++
	}
	out := make(map[bourse.Region]bool, len(count))
	for region, n := range count {
		out[region] = n > 1 && region.Validate() == nil && n >= f.Population(region)
	}
	return out
}

// Call sends one request to one worker; see [fabric.Fabric].
func (f *Fabric) Call(ctx context.Context, to bourse.Member, req *http.Request) (*http.Response, error) {
	return f.Caller.Call(ctx, to, req)
}

// Send sends one request as a whole to one worker; see [fabric.Fabric].
func (f *Fabric) Send(ctx context.Context, to bourse.Member, m *fabric.Message) (fabric.Answer, error) {
	return f.Caller.Send(ctx, to, m)
}
