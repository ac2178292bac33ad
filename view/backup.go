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

// restoredBoot replaces the boot's ID in a copy. It differs from every ID, so that a server that opens the copy begins a
// new epoch. Otherwise, its new transactions would have the numbers of those that it has published since the copy was made.
const restoredBoot = "restored"

// Backup writes a consistent copy of the view's file at path to a new file. The server may be running. A server of the
// same name can use the copy instead of its lost file: it begins a new epoch, and receives newer rows from other members.
// Errors: CodeUnavailable if the file cannot be copied, for example because the disk is full.
func Backup(ctx context.Context, path, to string) error {
	err := change(ctx, path, func(c *sqlite.Conn) error { return schema.Run(c, "VACUUM INTO ?", to) })
	if err == nil {
		err = change(ctx, to, func(c *sqlite.Conn) error { return schema.Run(c, "UPDATE meta SET boot = ?", restoredBoot) })
	}
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "copy the view %s: %w", path, err)
	}
	return nil
}

// Revive makes a copy usable that is older than the tombstones which the other members retain. Without it, a server replaces
// such a file, because the file may contain shared rows that have been deleted. Only a cluster that has lost all other
// copies may use it. No server may have the file open.
func Revive(ctx context.Context, path string, now time.Time) error {
	err := change(ctx, path, func(c *sqlite.Conn) error {
		return schema.Run(c, "UPDATE meta SET touched_at = max(touched_at, ?)", now.UnixNano())
	})
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "prepare the view %s: %w", path, err)
	}
	return nil
}

// change calls do with a connection to an existing file.
func change(ctx context.Context, path string, do func(*sqlite.Conn) error) error {
	c, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	c.SetBusyTimeout(copyPatience)
	c.SetInterrupt(ctx.Done())
	return errors.Join(do(c), c.Close())
}

// copyPatience is how long a copy waits for a server's lock.
const copyPatience = 5 * time.Second
