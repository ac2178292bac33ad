package view

import (
	"context"
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// Read calls fn with a connection to a consistent snapshot of the file. fn may execute any number
// of read-only statements. They all see the same state, and are interrupted when ctx is done. fn
// must not call Read. Read returns CodeUnavailable if the file cannot be read.
func (v *View) Read(ctx context.Context, fn func(*sqlite.Conn) error) error {
	err := v.pool.Read(ctx, fn)
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*bourse.Error](err); ok {
		return err
	}
	switch failureOf(err) {
	case failDamaged:
		v.reportDamage(err)
		return bourse.Errorf(bourse.CodeUnavailable, "read the view: %w", err)
	case failUnavailable, failKilled:
		return bourse.Errorf(bourse.CodeUnavailable, "read the view: %w", err)
	case failBadRow:
	}
	return fmt.Errorf("read the view: %w", err)
}

// reportDamage passes a reader's error to the writer, which then replaces the damaged file.
func (v *View) reportDamage(err error) {
	v.mu.Lock()
	v.faults.reading = err
	v.mu.Unlock()
	v.poke()
}
