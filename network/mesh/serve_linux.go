package mesh

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/ipc"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/bourse-dev/bourse/internal/companion"
)

// LinkName returns the name of the link of the Device whose Config.Dir is dir. It cannot be the name of a machine's
// link.
func LinkName(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	sum := sha256.Sum256([]byte(dir))
	return "bw" + hex.EncodeToString(sum[:4])
}

func lockFile(dir string) string { return filepath.Join(dir, "lock") }

// Serve is the main function of the process that runs wireguard-go. It returns when the process receives SIGTERM, when
// the link is removed, or when ctx is done. The daemon configures wireguard-go through its socket,
// /var/run/wireguard/<link>.sock.
func Serve(ctx context.Context, dir string, log *slog.Logger) error {
	companion.CloseInherited()
	tell := companion.Readiness()
	err := companion.Lock(lockFile(dir))
	if err == nil {
		err = serve(ctx, LinkName(dir), log, tell)
	}
	tell(err)
	return err
}

func serve(ctx context.Context, link string, log *slog.Logger, tell func(error)) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE) // which a terminal may send, for example
	if err := os.Chdir("/"); err != nil {
		return err
	}
	card, err := tun.CreateTUN(link, 1280)
	if err != nil {
		return fmt.Errorf("create link %s: %w", link, err)
	}
	dev := device.NewDevice(card, &bind{Bind: conn.NewStdNetBind()}, &device.Logger{
		Verbosef: device.DiscardLogf,
		Errorf:   func(format string, args ...any) { log.Warn("wireguard failed", "err", fmt.Sprintf(format, args...)) },
	})
	defer dev.Close()
	file, err := ipc.UAPIOpen(link)
	if err != nil {
		return fmt.Errorf("listen for the daemon: %w", err)
	}
	socket, err := ipc.UAPIListen(link, file)
	if err != nil {
		return fmt.Errorf("listen for the daemon: %w", err)
	}
	tell(nil)
	var wg sync.WaitGroup
	ended := make(chan error, 1)
	wg.Go(func() {
		for {
			c, err := socket.Accept()
			if err != nil {
				ended <- err
				return
			}
			go dev.IpcHandle(c) // until the daemon disconnects or the process exits
		}
	})
	select {
	case <-ctx.Done():
	case <-dev.Wait():
	case err = <-ended:
	}
	_ = socket.Close() // the process exits
	wg.Wait()
	return err
}

// bind sends and receives WireGuard packets.
type bind struct {
	conn.Bind
	mu sync.RWMutex // locked while an endpoint changes
}

// Send implements conn.Bind. It first tries to send all packets together. This fails if a packet is larger than the
// path's MTU, or if this host has lost the source address of earlier packets to the peer. In that case, Send stops
// using that source address and sends each packet separately, so that the kernel can fragment it. The peer ignores
// packets that arrive twice.
func (b *bind) Send(packets [][]byte, to conn.Endpoint) error {
	b.mu.RLock()
	err := b.Bind.Send(packets, to)
	b.mu.RUnlock()
	if err == nil {
		return nil
	}
	b.mu.Lock()
	to.ClearSrc()
	b.mu.Unlock()
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, p := range packets {
		if failed := b.Bind.Send([][]byte{p}, to); failed != nil {
			return failed
		}
	}
	return nil
}
