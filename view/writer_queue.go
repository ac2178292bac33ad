package view

import "log/slog"

// takeItems returns the transactions of the next commit, none while the disk
// refuses.
func (w *writer) takeItems() []*incoming {
	w.v.mu.Lock()
	defer w.v.mu.Unlock()
	if w.retry != nil {
		return nil
	}
	return w.v.intake.take(maxBatch, maxBatchBytes)
}

func (w *writer) giveBack(items []*incoming) {
	w.v.mu.Lock()
	defer w.v.mu.Unlock()
	w.v.intake.back(items)
}

// settleItems notes what the file has now. The caller holds the view's lock.
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

// setTrouble notes why nothing can be written, and logs it once.
func (w *writer) setTrouble(err error) {
	w.v.mu.Lock()
	first := w.v.faults.writing == nil
	w.v.faults.writing = err
	w.v.mu.Unlock()
	if first {
		w.v.config.Log.Error("the view's file cannot be written", slog.String("path", w.v.config.Path), slog.Any("err", err))
	}
}

func (w *writer) takeSuspicion() error {
	w.v.mu.Lock()
	defer w.v.mu.Unlock()
	err := w.v.faults.reading
	w.v.faults.reading = nil
	return err
}
