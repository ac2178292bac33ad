package market

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"

	"github.com/bourse-dev/bourse"
)

// A task differs from a machine in what cannot be undone: a machine that was
// started twice is destroyed, work that was done twice is done. So a claim of
// a task whose outcome is unknown ends the order: no other worker is claimed,
// and a repetition with the same id returns how it ended. Nor is it canceled:
// a running worker has seen the connection break and ends it by itself; one
// whose daemon was restarted goes on with a program that is still running.

// unsure is the error of a task that a worker may have begun. A repetition of
// an order with the caller's own id may even overtake the claim: both go to one
// worker (byOrder), which makes them one. What remains open is a claim that is
// still in progress, its connection lost, when a repetition has asked all workers,
// and then is claimed at another worker: because the broker chose the id, or
// because the first worker refuses at that moment.
func unsure(order *bourse.Order, at *bourse.Member) error {
	return bourse.Errorf(bourse.CodeTimeout,
		"the answer of worker %s was lost, and it may have begun the task: repeat with order id %s to be told how it ended", at.ID, order.ID)
}

// rejoin claims a task once more at the worker that has it, which answers with
// the end of it.
func (t *trade) rejoin(ctx context.Context, members []bourse.Member, has *bourse.Fill) (*bourse.Fill, error) {
	i := slices.IndexFunc(members, func(m bourse.Member) bool { return m.ID == has.Sale().Worker })
	if fill := t.claimBatch(ctx, []*bourse.Member{&members[i]}, false); fill != nil {
		fill.Again = true
		return fill, nil
	}
	if err := t.over(ctx); err != nil {
		return nil, err
	}
	return nil, bourse.Errorf(bourse.CodeUnavailable, "worker %s has order %s and does not tell its end: repeat it", members[i].ID, t.order.ID)
}

// byOrder puts ranked quotes into an order that follows from the order's id
// and the workers' alone (rendezvous hashing): brokers that are brought a task
// at the same moment claim it at one worker, which makes it one.
func byOrder(order bourse.OrderID, quotes []bourse.Quote, ranked []Ranked) {
	weight := func(r Ranked) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(order))
		_, _ = h.Write([]byte(quotes[r.Quote].Worker))
		return h.Sum64()
	}
	slices.SortFunc(ranked, func(a, b Ranked) int { return cmp.Compare(weight(a), weight(b)) })
}
