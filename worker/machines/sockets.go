package machines

import (
	"encoding/hex"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
)

// mostTable bounds a table of sockets, in bytes.
const mostTable = 4 << 20

// What /proc/net calls a TCP socket that listens, and a UDP socket that is bound and
// connected to no one.
const (
	stateListen = "0A"
	stateBound  = "07"
)

// listening returns the sockets that listen in a process's network, by the links that
// open files are of them.
func (t Table) listening(pid int) map[string]bourse.ListenSocket {
	out := map[string]bourse.ListenSocket{}
	for _, of := range []struct{ file, proto, state string }{
		{"net/tcp", "tcp", stateListen}, {"net/tcp6", "tcp", stateListen}, {"net/udp", "udp", stateBound}, {"net/udp6", "udp", stateBound},
	} {
		f, err := os.Open(t.file(pid, of.file))
		if err != nil {
			continue
		}
		text := make([]byte, 0, 64<<10)
		for len(text) < mostTable {
			text = slices.Grow(text, 64<<10)
			n, err := f.Read(text[len(text):cap(text)])
			text = text[:len(text)+n]
			if err != nil {
				break
			}
		}
		_ = f.Close() // read only
		parseSockets(string(text), of.proto, of.state, out)
	}
	return out
}

// parseSockets reads a table of sockets; proc(5), /proc/net/tcp.
func parseSockets(text, proto, state string, out map[string]bourse.ListenSocket) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[3] != state {
			continue
		}
		if at, ok := parseAddress(fields[1]); ok {
			out["socket:["+fields[9]+"]"] = bourse.ListenSocket{Proto: proto, Address: at.String()}
		}
	}
}

// parseAddress reads the hexadecimal form of an address: words of four bytes, each in
// the order of the processor, which is little-endian on all that we build for, and a
// port.
func parseAddress(text string) (netip.AddrPort, bool) {
	ip, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(ip)
	n, errPort := strconv.ParseUint(port, 16, 16)
	if err != nil || errPort != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	addr, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr, uint16(n)), ok
}
