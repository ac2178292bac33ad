package view

import "log/slog"

// takeItems gives the transactions of the next commit, none while the disk
// refuses.
func (v *View) takeItems() []*incoming {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.writer.retry != nil {
		return nil
	}
	return v.intake.take(maxBatch, maxBatchBytes)
}

func (v *View) giveBack(items []*incoming) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.intake.back(items)
}

// settleItems notes what the file has now. The caller holds the view's lock.
func (v *View) settleItems(items []*incoming) {
	for _, in := range items {
		v.intake.settle(in.Stream, v.state.heads[in.Stream].seq)
	}
}

func (v *View) hasJobs() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.jobs) > 0
}

// setTrouble notes why nothing can be written, and tells the log once.
func (v *View) setTrouble(err error) {
	v.mu.Lock()
	first := v.faults.writing == nil
	v.faults.writing = err
	v.mu.Unlock()
	if first {
		v.config.Log.Error("the view's file cannot be written", slog.String("path", v.config.Path), slog.Any("err", err))
	}
}

func (v *View) takeSuspicion() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	err := v.faults.reading
	v.faults.reading = nil
	return err
}
