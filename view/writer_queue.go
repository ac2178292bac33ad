package view

import "log/slog"

// takeItems returns the transactions for the next commit. It returns none while the file cannot be
// written.
func (w *writer) takeItems() []*incoming {
	w.v.mu.Lock()
	defer w.v.mu.Unlock()
	if w.retry != nil {
		return nil
	}
	return w.v.intake.take(maxBatch, maxBatchBytes)
}

func (w *writer) requeueItems(items []*incoming) {
	w.v.mu.Lock()
	defer w.v.mu.Unlock()
	w.v.intake.requeue(items)
}

// settleItems updates the queue after transactions were applied. The caller holds the view's
// lock.
func (w *writer) settleItems(items []*incoming) {
	for _, in := range items {
		w.v.intake.settle(in.Stream, w.v.state.heads[in.Stream].seq)
	}
}

func (w *writer) hasJobs() bool {
	w.v.mu.Lock()
	defer w.v.mu.Unlock()
	return len(w.v.jobs) > 0
}

// setWriteError records why the file cannot be written, and logs the first such error.
func (w *writer) setWriteError(err error) {
	w.v.mu.Lock()
	first := w.v.faults.writing == nil
	w.v.faults.writing = err
	w.v.mu.Unlock()
	if first {
		w.v.config.Log.Error("write to the view's file failed", slog.String("path", w.v.config.Path), slog.Any("err", err))
	}
}

func (w *writer) takeReadError() error {
	w.v.mu.Lock()
	defer w.v.mu.Unlock()
	err := w.v.faults.reading
	w.v.faults.reading = nil
	return err
}
