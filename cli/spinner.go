package cli

import (
	"fmt"
	"sync"
	"time"
)

const (
	spinnerDelay = 80 * time.Millisecond // what ends sooner needs no spinner
	spinnerStep  = 80 * time.Millisecond
	spinnerRoom  = 4 // of what is no text, and the cursor
)

var spinnerFrames = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

// Spin shows on a terminal that something is in progress, until the function
// that it returns is called; that one wipes the line and may be called twice.
// On anything but a terminal whose cursor moves nothing is shown.
func Spin(s Stream, what string) (stop func()) {
	if !s.TTY || s.Dumb {
		return func() {}
	}
	end := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() { spinUntil(end, s, what) })
	return sync.OnceFunc(func() {
		close(end)
		done.Wait()
	})
}

func spinUntil(end <-chan struct{}, w Stream, what string) {
	select {
	case <-end:
		return
	case <-time.After(spinnerDelay):
	}
	if width, _ := w.Size(); width > 0 {
		what = Cut(what, max(width-spinnerRoom, MinWidth)) // or each step would scroll
	}
	tick := time.NewTicker(spinnerStep)
	defer tick.Stop()
	for i := 0; ; i++ {
		fmt.Fprintf(w, "\r%c %s ", spinnerFrames[i%len(spinnerFrames)], what)
		select {
		case <-end:
			fmt.Fprint(w, "\r\x1b[K")
			return
		case <-tick.C:
		}
	}
}
