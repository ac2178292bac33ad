package view

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/schema"
)

// copiedBoot replaces the boot ID in a copy of the file. It differs from every real boot ID, so
// that a server that opens the copy begins a new epoch. Otherwise, the server would reuse the
// numbers of transactions that it has published since the copy was made.
const copiedBoot = "restored"

// Backup writes a consistent copy of the view's file at path to a new file. The server may be
// running. A server with the same ID that has lost its file can use the copy instead. It then
// begins a new epoch and receives newer rows from other members. Errors: CodeUnavailable if the
// file cannot be copied, for example because the disk is full.
func Backup(ctx context.Context, path, to string) error {
	err := openAndChange(ctx, path, func(c *sqlite.Conn) error { return schema.Run(c, "VACUUM INTO ?", to) })
	if err == nil {
		err = openAndChange(ctx, to, func(c *sqlite.Conn) error { return schema.Run(c, "UPDATE meta SET boot = ?", copiedBoot) })
	}
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "copy the view %s: %w", path, err)
	}
	return nil
}

// AllowOldCopy allows a server to use a copy that it would otherwise replace because of its age: the
// copy may contain deleted shared rows, whose tombstones the other members no longer retain. Use
// it only for a cluster that has lost all other copies, while no server has the file open.
func AllowOldCopy(ctx context.Context, path string, now time.Time) error {
	err := openAndChange(ctx, path, func(c *sqlite.Conn) error {
		return schema.Run(c, "UPDATE meta SET touched_at = max(touched_at, ?)", now.UnixNano())
	})
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "prepare the view %s: %w", path, err)
	}
	return nil
}

// openAndChange opens a connection to the existing file at path and calls do with it.
func openAndChange(ctx context.Context, path string, do func(*sqlite.Conn) error) error {
	c, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	c.SetBusyTimeout(copyTimeout)
	c.SetInterrupt(ctx.Done())
	return errors.Join(do(c), c.Close())
}

// copyTimeout is how long Backup and AllowOldCopy wait for a lock that a server holds.
const copyTimeout = 5 * time.Second
