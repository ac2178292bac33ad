package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

func newForward(s *cli.Shell) *cobra.Command {
	var app string
	c := &cobra.Command{
		Use:   "forward MACHINE [LOCALPORT:]PORT",
		Short: "Forward a local port to a machine's TCP port, until Ctrl-C",
		Long: `Listen on a loopback port of this host and forward each connection through the
API to a port of the machine. The machine's own address need not be reachable.`,
		Example:           "  bourse machine forward quiet-river-1234 8080:80",
		Args:              cli.Exactly(2),
		ValidArgsFunction: completeMachine(s, &app),
		RunE: func(c *cobra.Command, args []string) error {
			here, there, ok := parseForward(args[1])
			if !ok {
				return bourse.Errorf(bourse.CodeInvalid, "%s: use PORT or LOCALPORT:PORT", bourse.Quoted(args[1]))
			}
			id, err := resolve(c.Context(), s, app, args[0])
			if err != nil {
				return err
			}
			l, err := new(net.ListenConfig).Listen(c.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", here))
			if err != nil {
				return bourse.Errorf(bourse.CodeInvalid, "%w", err)
			}
			if _, err := fmt.Fprintf(s.Out, "%s forwards to port %d of machine %s\n", l.Addr(), there, id); err != nil {
				return err
			}
			return forward(c.Context(), s, l, app, id, uint16(there))
		},
	}
	s.BindApp(c, &app)
	return c
}

func parseForward(word string) (here, there int, ok bool) {
	first, second, two := strings.Cut(word, ":")
	if !two {
		second = first
	}
	if first == "0" && two { // 0 means any free port
		there, ok = cli.ParsePort(second)
		return 0, there, ok
	}
	here, ok1 := cli.ParsePort(first)
	there, ok2 := cli.ParsePort(second)
	return here, there, ok1 && ok2
}

// forward accepts and forwards connections until ctx is done.
func forward(ctx context.Context, s *cli.Shell, l net.Listener, app string, id bourse.MachineID, port uint16) error {
	var carrying sync.WaitGroup
	defer carrying.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return ctx.Err()
			}
			return err
		}
		carrying.Go(func() {
			defer conn.Close()
			if err := carry(ctx, s, conn, app, id, port); err != nil && ctx.Err() == nil {
				s.Note("connection from " + conn.RemoteAddr().String() + ": " + cli.Clean(bourse.MessageOf(err)))
			}
		})
	}
}

// carry copies data in both directions until the machine has finished sending.
func carry(ctx context.Context, s *cli.Shell, conn net.Conn, app string, id bourse.MachineID, port uint16) error {
	tunnel, err := s.Client().Tunnel(ctx, bourse.AppName(app), id, port)
	if err != nil {
		return err
	}
	defer tunnel.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var sending sync.WaitGroup
	sending.Go(func() {
		if _, err := io.Copy(tunnel, conn); err == nil {
			_ = tunnel.CloseWrite() // fails only if the machine is gone
		}
	})
	_, err = io.Copy(conn, tunnel)
	_ = conn.Close() // also ends the copying in the other direction
	sending.Wait()
	return err
}
