package view

import (
	"context"
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
)

// Read calls fn with a connection on a snapshot of the file. fn may run any
// number of statements that read: they all see one state. It ends with ctx. fn
// must not call Read. CodeUnavailable: the file cannot be read.
func (v *View) Read(ctx context.Context, fn func(*sqlite.Conn) error) error {
	err := v.pool.Read(ctx, fn)
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*bourse.Error](err); ok {
		return err
	}
	switch fateOf(err) {
	case fateDamaged:
		v.suspect(err)
		return bourse.Errorf(bourse.CodeUnavailable, "read the view: %w", err)
	case fateUnavailable, fateKilled:
		return bourse.Errorf(bourse.CodeUnavailable, "read the view: %w", err)
	case fateBadRow:
	}
	return fmt.Errorf("read the view: %w", err)
}

// suspect has the writer replace a file that a reader found damaged.
func (v *View) suspect(err error) {
	v.mu.Lock()
	v.faults.reading = err
	v.mu.Unlock()
	v.poke()
}
