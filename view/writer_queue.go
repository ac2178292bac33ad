package view

import "log/slog"

// takeItems returns other sites' transactions for the next commit. It returns none for some time
// after a failed write.
func (w *writer) takeItems() []*incoming {
	w.view.mu.Lock()
	defer w.view.mu.Unlock()
	if w.retry != nil {
		return nil
	}
	return w.view.intake.take(maxBatch, maxBatchBytes)
}

func (w *writer) requeueItems(items []*incoming) {
	w.view.mu.Lock()
	defer w.view.mu.Unlock()
	w.view.intake.requeue(items)
}

// settleItems updates the queue after the given transactions were applied. The caller holds the
// view's lock.
func (w *writer) settleItems(items []*incoming) {
	for _, in := range items {
		w.view.intake.settle(in.Stream, w.view.state.heads[in.Stream].seq)
	}
}

func (w *writer) hasJobs() bool {
	w.view.mu.Lock()
	defer w.view.mu.Unlock()
	return len(w.view.jobs) > 0
}

// setWriteError records why the file cannot be written. It logs only the first error after a
// successful write.
func (w *writer) setWriteError(err error) {
	w.view.mu.Lock()
	first := w.view.faults.writing == nil
	w.view.faults.writing = err
	w.view.mu.Unlock()
	if first {
		w.view.config.Log.Error("write to the view's file failed", slog.String("path", w.view.config.Path), slog.Any("err", err))
	}
}

func (w *writer) takeReadError() error {
	w.view.mu.Lock()
	defer w.view.mu.Unlock()
	err := w.view.faults.reading
	w.view.faults.reading = nil
	return err
}
