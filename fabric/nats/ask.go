package nats

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	client "github.com/nats-io/nats.go"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// regionPrefix, followed by a region's name, is the last token of the reply subject of an order that was sent to the
// whole region.
const regionPrefix = "all."

// askNumber is the number of this process's latest Ask.
var askNumber atomic.Uint64

// pendingAsk is the state of one Ask. It belongs to one goroutine.
type pendingAsk struct {
	members    []bourse.Member
	answers    chan answer // has capacity for all expected answers and as many unexpected ones
	unanswered map[int]bool
}

// answer is a message, together with the last token of its subject.
type answer struct {
	target string
	*client.Msg
}

// ask sends an order to workers on this network. If whole contains a worker's region, one message
// goes to the whole region; otherwise each worker gets its own message. It returns when all workers
// have answered or ctx is done. It returns false without sending anything if the order is too large
// for a message.
func (l *Link) ask(ctx context.Context, to []bourse.Member, whole map[bourse.Region]bool, order []byte, quoted func(bourse.Quote)) bool {
	if l.nats.IsConnected() && int64(len(order)) > l.nats.MaxPayload() {
		l.Oversized.Add(1)
		return false
	}
	a := &pendingAsk{members: to, answers: make(chan answer, 2*len(to)), unanswered: make(map[int]bool, len(to))}
	for i := range to {
		a.unanswered[i] = true
	}
	number := strconv.FormatUint(askNumber.Add(1), 36)
	l.mu.Lock()
	l.asks[number] = a
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.asks, number)
		l.mu.Unlock()
	}()
	l.sendOrder(a, whole, l.ownPrefix+"quote."+number+".", order)
	for len(a.unanswered) > 0 {
		select {
		case m := <-a.answers:
			a.take(m, quoted)
		case <-ctx.Done():
			return true
		}
	}
	return true
}

// sendOrder sends the order to the workers. It stops waiting for workers that cannot be reached, because they will not
// answer.
func (l *Link) sendOrder(a *pendingAsk, whole map[bourse.Region]bool, inbox string, order []byte) {
	sent := map[bourse.Region]bool{}
	for i := range a.members {
		m := &a.members[i]
		subject, target := "", strconv.Itoa(i)
		if whole[m.Region] {
			subject, target = l.orders(m.Region), regionPrefix+string(m.Region)
			if sent[m.Region] {
				continue
			}
			sent[m.Region] = true
		} else if address, _, ok := parseHostPort(m.Address); ok {
			subject = l.prefixOf(address) + "ask"
		}
		if subject == "" || l.send(subject, inbox+target, order) != nil {
			a.skip(target)
		}
	}
}

// orders returns the subject of orders that are sent to a whole region.
func (l *Link) orders(region bourse.Region) string {
	return l.base + "region." + string(region) + ".orders"
}

// takeQuote passes an answer to the Ask that it belongs to. rest is the end of the subject, which contains the Ask's
// number and identifies the sender.
func (l *Link) takeQuote(rest string, m *client.Msg) {
	number, target, _ := strings.Cut(rest, ".")
	l.mu.Lock()
	a := l.asks[number]
	l.mu.Unlock()
	if a == nil {
		return // the Ask has ended
	}
	select {
	case a.answers <- answer{target, m}:
	default:
		l.Malformed.Add(1)
	}
}

// take handles an answer, which may be a quote, a failure, or NATS's
// notification that nobody received the order.
func (a *pendingAsk) take(m answer, quoted func(bourse.Quote)) {
	if isNoResponders(m.Msg) {
		a.skip(m.target)
		return
	}
	i, ok := a.sender(m)
	if !ok || !a.unanswered[i] {
		return
	}
	delete(a.unanswered, i)
	if m.Header.Get(headerFailure) != "" {
		return
	}
	if q, err := fabric.DecodeQuote(a.members[i], m.Data); err == nil {
		quoted(q)
	}
}

// sender returns the index in a.members of the worker that sent the answer. If the order was sent to a whole region, a
// header of the answer names the worker.
func (a *pendingAsk) sender(m answer) (int, bool) {
	if !strings.HasPrefix(m.target, regionPrefix) {
		i, err := strconv.Atoi(m.target)
		return i, err == nil
	}
	from := bourse.WorkerID(m.Header.Get(headerFrom))
	i := slices.IndexFunc(a.members, func(m bourse.Member) bool { return m.ID == from })
	return i, i >= 0
}

// skip stops waiting for workers that will not answer. The target is the last token of the reply subject, which
// identifies one worker or a whole region.
func (a *pendingAsk) skip(target string) {
	region, all := strings.CutPrefix(target, regionPrefix)
	if !all {
		i, _ := strconv.Atoi(target)
		delete(a.unanswered, i)
		return
	}
	for i := range a.members {
		if a.members[i].Region == bourse.Region(region) {
			delete(a.unanswered, i)
		}
	}
}
