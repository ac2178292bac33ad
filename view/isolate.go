package view

import (
	"errors"
	"log/slog"

	"github.com/bourse-dev/bourse"
)

// isolate retries the jobs and transactions of a failed batch one by one, each in a separate
// commit.
func (w *writer) isolate(jobs []*job, items []*incoming) error {
	for _, j := range jobs {
		err := w.transact(j.do, nil)
		if _, meant := errors.AsType[*bourse.Error](err); err != nil && !meant && failureOf(err) == failBadRow {
			err = w.transact(func(b *batch) error { b.perRow = true; return j.do(b) }, nil)
		}
		if err != nil && failureOf(err) != failBadRow {
			if err := w.failed(err, []*job{j}, nil); err != nil {
				return err
			}
			continue
		}
		answer([]*job{j}, err)
	}
	for i, in := range items {
		err := w.applyAlone(in)
		if err == nil {
			continue
		}
		if failureOf(err) == failBadRow { // if not even the position can be recorded, the file must be damaged
			w.replace(err)
			return nil
		}
		return w.failed(err, nil, items[i:])
	}
	return nil
}

// applyAlone applies one transaction in a separate commit. If that fails, it applies the rows one by one,
// and quarantines those that cannot be applied. If even that fails, it skips the whole transaction.
func (w *writer) applyAlone(in *incoming) error {
	settle := func() { w.settleItems([]*incoming{in}) }
	err := w.transact(func(b *batch) error { return w.applyIn(b, in) }, settle)
	if err == nil || failureOf(err) != failBadRow {
		return err
	}
	first := err
	err = w.transact(func(b *batch) error { b.perRow = true; return w.applyIn(b, in) }, settle)
	if err == nil || failureOf(err) != failBadRow {
		return err
	}
	w.view.config.Log.Warn("apply transaction failed", slog.String("site", string(in.Site)), slog.Uint64("epoch", in.Epoch),
		slog.Uint64("seq", in.Seq), slog.Any("err", first))
	return w.transact(func(b *batch) error { return b.skip(in, first) }, settle)
}
