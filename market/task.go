package market

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"

	"github.com/bourse-dev/bourse"
)

// A task differs from a machine in that it cannot be undone: a machine that was started twice can be destroyed, but
// work that was done twice is done. So a claim of a task with an unknown outcome ends the order. No other worker is
// claimed, and a repetition with the same id returns the outcome. Nor is the task canceled: a running worker has seen
// the connection break and stops the task itself, and a worker whose daemon was restarted continues a program that is
// still running.

// errUnknownTask returns the error of a task that a worker may have started. If the caller chose the order's id, a
// repetition may even overtake the claim: both go to one worker (sortByHash), which runs the task once. One case
// remains open: a claim whose connection was lost is still in progress when a repetition has asked all workers, and
// the repetition is then claimed at another worker, because the broker chose the id or because the first worker
// refuses at that moment.
func errUnknownTask(order *bourse.Order, at *bourse.Member) error {
	return bourse.Errorf(bourse.CodeTimeout,
		"the answer of worker %s was lost; it may have started the task: repeat it with order id %s to learn the outcome", at.ID, order.ID)
}

// rejoin repeats the claim of a task at the worker that has it. The worker answers with the task's outcome.
func (t *trade) rejoin(ctx context.Context, members []bourse.Member, has *bourse.Fill) (*bourse.Fill, error) {
	i := slices.IndexFunc(members, func(m bourse.Member) bool { return m.ID == has.Sale().Worker })
	if fill := t.claimBatch(ctx, []*bourse.Member{&members[i]}, false); fill != nil {
		fill.Again = true
		return fill, nil
	}
	if err := t.ended(ctx); err != nil {
		return nil, err
	}
	return nil, bourse.Errorf(bourse.CodeUnavailable, "worker %s has order %s but did not return its outcome: repeat it", members[i].ID, t.order.ID)
}

// sortByHash sorts ranked quotes by a hash of the order's id and the worker's (rendezvous hashing). Brokers that receive
// a task at the same moment then claim it at the same worker, which runs it once.
func sortByHash(order bourse.OrderID, quotes []bourse.Quote, ranked []Ranked) {
	weight := func(r Ranked) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(order))
		_, _ = h.Write([]byte(quotes[r.Quote].Worker))
		return h.Sum64()
	}
	slices.SortFunc(ranked, func(a, b Ranked) int { return cmp.Compare(weight(a), weight(b)) })
}
