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
// numbers of the transactions that it published after the copy was made.
const copiedBoot = "restored"

// Backup copies the view's file at path to a new file at target. The copy is consistent even if the
// server is running. If the server loses its file, it can use the copy instead. It then begins a
// new epoch, and receives newer rows from other members. Errors: CodeUnavailable if the file cannot
// be copied, for example because the disk is full.
func Backup(ctx context.Context, path, target string) error {
	err := openAndChange(ctx, path, func(c *sqlite.Conn) error { return schema.Run(c, "VACUUM INTO ?", target) })
	if err == nil {
		err = openAndChange(ctx, target, func(c *sqlite.Conn) error { return schema.Run(c, "UPDATE meta SET boot = ?", copiedBoot) })
	}
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "copy the view %s: %w", path, err)
	}
	return nil
}

// AllowOldCopy prepares an old copy of the view's file, so that a server uses it despite its age.
// Normally, a server replaces such a file, because the file may contain shared rows that were
// deleted so long ago that the other members no longer retain their tombstones. Use AllowOldCopy
// only if the cluster has lost all other copies, and while no server has the file open.
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

// copyTimeout is how long Backup and AllowOldCopy wait for a server's lock on the file.
const copyTimeout = 5 * time.Second
