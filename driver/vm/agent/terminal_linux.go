package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/bourse-dev/bourse/driver/vm/session"
)

// follow returns a channel that receives an order for each signal that this process receives. If
// terminal is set, it also puts stdin's terminal into raw mode, and converts SIGWINCH to an order
// with the terminal's new size. The caller must call restore, which ends raw mode.
func follow(terminal bool) (orders chan session.Order, restore func()) {
	restore = func() {}
	if terminal {
		if old, err := term.MakeRaw(int(os.Stdin.Fd())); err == nil {
			restore = func() { _ = term.Restore(int(os.Stdin.Fd()), old) } // the terminal may be gone
		}
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	orders = make(chan session.Order)
	go func() {
		for s := range signals {
			switch n, ok := s.(syscall.Signal); {
			case !ok || n == unix.SIGCHLD || n == unix.SIGURG || n == unix.SIGPIPE: // not for the program
			case n == unix.SIGWINCH && terminal:
				orders <- session.Order{Size: sizeOf(os.Stdin)}
			default:
				orders <- session.Order{Signal: int(n)}
			}
		}
	}()
	return orders, restore
}

func sizeOf(terminal *os.File) session.Size {
	cols, rows, err := term.GetSize(int(terminal.Fd()))
	if err != nil {
		return session.Size{}
	}
	return session.Size{Rows: uint16(rows), Cols: uint16(cols)}
}
