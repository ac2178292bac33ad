package market

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"

	"github.com/bourse-dev/bourse"
)

// Unlike a machine, a task cannot be undone. If two machines were started for an order, one of them can be destroyed,
// but if a task ran twice, its effects remain. Therefore, if the outcome of a task's claim is unknown, the order fails:
// the exchange neither claims it on another worker nor cancels the task. If the caller repeats the order with the same
// ID, it receives the task's outcome. A worker whose daemon keeps running notices the broken connection and stops the
// task. A worker whose daemon was restarted lets a program that is still running continue.

// errUnknownTask returns the error for a task that a worker may have started. If the caller chose the order's ID, it is
// usually safe to repeat the order, even while the claim is still in progress: both the claim and the repeated order go to the same
// worker (see sortByHash), which runs the task once.
//
// In rare cases, the task can still run twice. A claim whose connection was lost may still be in progress after a
// repeated order has asked all workers. The repeated order may then be claimed on another worker, either because the
// broker chose the original order's ID, so that sortByHash was not used, or because the first worker refuses it at that
// moment.
func errUnknownTask(order *bourse.Order, at *bourse.Member) error {
	return bourse.Errorf(bourse.CodeTimeout,
		"the answer from worker %s was lost, but the worker may have started the task: repeat it with order id %s to learn the outcome", at.ID, order.ID)
}

// repeatTask repeats a task's claim on the worker that has already recorded the task. The worker
// answers with the task's outcome.
func (t *trade) repeatTask(ctx context.Context, members []bourse.Member, has *bourse.Fill) (*bourse.Fill, error) {
	i := slices.IndexFunc(members, func(m bourse.Member) bool { return m.ID == has.Summary().Worker })
	if fill := t.claimBatch(ctx, []*bourse.Member{&members[i]}, false); fill != nil {
		fill.Repeated = true
		return fill, nil
	}
	if err := t.checkEnded(ctx); err != nil {
		return nil, err
	}
	return nil, bourse.Errorf(bourse.CodeUnavailable, "worker %s has recorded order %s but did not return its outcome: repeat the order", members[i].ID, t.order.ID)
}

// sortByHash sorts the ranked quotes by a hash of the order's ID and the worker's ID (rendezvous
// hashing). If several brokers receive the same task at the same moment, they claim it on the same
// worker, which runs it once.
func sortByHash(order bourse.OrderID, quotes []bourse.Quote, ranked []Ranked) {
	weight := func(r Ranked) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(order))
		_, _ = h.Write([]byte(quotes[r.Quote].Worker))
		return h.Sum64()
	}
	slices.SortFunc(ranked, func(a, b Ranked) int { return cmp.Compare(weight(a), weight(b)) })
}
