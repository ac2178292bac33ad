package view

import (
	"errors"
	"log/slog"

	"github.com/bourse-dev/bourse"
)

// isolate writes each part of a failed batch alone.
func (w *writer) isolate(jobs []*job, items []*incoming) error {
	for _, j := range jobs {
		err := w.transact(j.do, nil)
		if _, meant := errors.AsType[*bourse.Error](err); err != nil && !meant && fateOf(err) == fateBadRow {
			err = w.transact(func(b *batch) error { b.careful = true; return j.do(b) }, nil)
		}
		if err != nil && fateOf(err) != fateBadRow {
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
		if fateOf(err) == fateBadRow { // not even its number can be noted: it is the file
			w.replace(err)
			return nil
		}
		return w.failed(err, nil, items[i:])
	}
	return nil
}

// applyAlone applies a transaction by itself: if it fails, its rows one by
// one; if that fails too, its number without its rows.
func (w *writer) applyAlone(in *incoming) error {
	settle := func() { w.settleItems([]*incoming{in}) }
	err := w.transact(func(b *batch) error { return w.applyIn(b, in) }, settle)
	if err == nil || fateOf(err) != fateBadRow {
		return err
	}
	first := err
	err = w.transact(func(b *batch) error { b.careful = true; return w.applyIn(b, in) }, settle)
	if err == nil || fateOf(err) != fateBadRow {
		return err
	}
	w.v.config.Log.Warn("a transaction could not be applied", slog.String("site", string(in.Site)), slog.Uint64("epoch", in.Epoch),
		slog.Uint64("seq", in.Seq), slog.Any("err", first))
	return w.transact(func(b *batch) error { return b.skip(in, first) }, settle)
}
