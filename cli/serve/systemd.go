package serve

import (
	"errors"
	"net"
	"os"

	"github.com/bourse-dev/bourse"
)

// notifySocket is the environment variable that contains the address of the socket where systemd
// expects notifications from a unit of Type=notify; see sd_notify(3).
const notifySocket = "NOTIFY_SOCKET"

// notifySystemd notifies systemd that the server is ready, if systemd requests it.
func notifySystemd() error {
	name := os.Getenv(notifySocket)
	if name == "" {
		return nil
	}
	_ = os.Unsetenv(notifySocket) // child processes must not notify systemd
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err == nil {
		_, err = c.Write([]byte("READY=1"))
		err = errors.Join(err, c.Close())
	}
	if err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "%s: %w", notifySocket, err)
	}
	return nil
}
