package cli

import (
	"math"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

var sizePattern = regexp.MustCompile(`^([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([a-z]*)$`)

// sizeUnits maps the units of sizes to MiB. As in flyctl, all units are binary, so GB means
// GiB. A number without a unit is in MiB.
var sizeUnits = map[string]float64{
	"": 1, "m": 1, "mb": 1, "mib": 1,
	"k": 1.0 / 1024, "kb": 1.0 / 1024, "kib": 1.0 / 1024,
	"g": 1024, "gb": 1024, "gib": 1024,
	"t": 1 << 20, "tb": 1 << 20, "tib": 1 << 20,
}

// ParseMiB parses a size such as "512", "512MiB" or "1.5GiB". It rounds up to whole
// MiB.
func ParseMiB(s string) (bourse.MiB, error) {
	m := sizePattern.FindStringSubmatch(strings.ToLower(strings.TrimSpace(s)))
	if m == nil {
		return 0, bourse.Errorf(bourse.CodeInvalid, "size %s: use 512MiB, 8GiB or a number of MiB", bourse.Quoted(s))
	}
	unit, known := sizeUnits[m[2]]
	n, err := strconv.ParseFloat(m[1], 64)
	if !known || err != nil {
		return 0, bourse.Errorf(bourse.CodeInvalid, "size %s: use 512MiB, 8GiB or a number of MiB", bourse.Quoted(s))
	}
	n = math.Ceil(n * unit)
	if n > bourse.MaxAmount {
		return 0, bourse.Errorf(bourse.CodeInvalid, "size %s is too large", bourse.Quoted(s))
	}
	return bourse.MiB(n), nil
}

var decimalPattern = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,9})?$`)

// ParseCPUs parses a number of cores such as "4" or "0.5". It rounds down to milliCPUs, so
// that a host does not offer more than it has.
func ParseCPUs(s string) (bourse.MilliCPU, error) {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !decimalPattern.MatchString(s) {
		return 0, bourse.Errorf(bourse.CodeInvalid, "cpus %s: use a number of cores such as 4 or 0.5", bourse.Quoted(s))
	}
	return bourse.MilliCPU(math.Floor(n*1000 + 1e-6)), nil
}

// ParsePair splits "NAME=VALUE". The name must not be empty.
func ParsePair(s string) (name, value string, err error) {
	name, value, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return "", "", bourse.Errorf(bourse.CodeInvalid, "%s: use NAME=VALUE", bourse.Quoted(s))
	}
	return name, value, nil
}

// ParsePairs parses a list of NAME=VALUE. A duplicate name is an error, because one of its
// values would be lost.
func ParsePairs(list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(list))
	for _, s := range list {
		name, value, err := ParsePair(s)
		if err != nil {
			return nil, err
		}
		if _, twice := out[name]; twice {
			return nil, bourse.Errorf(bourse.CodeInvalid, "%s is given more than once", bourse.Quoted(name))
		}
		out[name] = value
	}
	return out, nil
}

// parseCount parses "NAME=N", such as "slots=10". N is a whole number of at least 0.
func parseCount(s string) (string, int64, error) {
	name, value, err := ParsePair(s)
	if err != nil {
		return "", 0, bourse.Errorf(bourse.CodeInvalid, "%s: use NAME=N", bourse.Quoted(s))
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 || n > bourse.MaxAmount {
		return "", 0, bourse.Errorf(bourse.CodeInvalid, "%s: %s is not a whole number from 0 to %d", name, bourse.Quoted(value), int64(bourse.MaxAmount))
	}
	return name, n, nil
}

// ParseCounts parses a list of NAME=N into sorted amounts.
func ParseCounts(list []string) (bourse.Amounts, error) {
	var out bourse.Amounts
	for _, s := range list {
		name, n, err := parseCount(s)
		if err != nil {
			return nil, err
		}
		if err := bourse.ValidateRequirementName(name); err != nil {
			return nil, err
		}
		out = append(out, bourse.Amount{Resource: bourse.Resource(name), Amount: n})
	}
	out = out.Sorted()
	return out, out.Validate()
}

// ParseFactor parses "NAME=F", such as "shared=8". F is from 1 to 1000.
func ParseFactor(s string) (string, float64, error) {
	name, value, err := ParsePair(s)
	if err != nil {
		return "", 0, err
	}
	f, err := strconv.ParseFloat(value, 64)
	if err != nil || !decimalPattern.MatchString(value) || f < 1 || f > 1000 {
		return "", 0, bourse.Errorf(bourse.CodeInvalid, "%s: %s is not a factor from 1 to 1000", name, bourse.Quoted(value))
	}
	return name, f, nil
}

// PortRange is an inclusive range of TCP ports.
type PortRange struct{ First, Last uint16 }

// ParsePorts parses a port range such as "20000-29999".
func ParsePorts(s string) (PortRange, error) {
	low, high, ok := strings.Cut(s, "-")
	first, err1 := strconv.ParseUint(low, 10, 16)
	last, err2 := strconv.ParseUint(high, 10, 16)
	if !ok || err1 != nil || err2 != nil || first == 0 || first > last {
		return PortRange{}, bourse.Errorf(bourse.CodeInvalid, "ports %s: use FIRST-LAST such as 20000-29999", bourse.Quoted(s))
	}
	return PortRange{uint16(first), uint16(last)}, nil
}

// ParseListen parses an address to listen on. An empty host means all interfaces. The host
// must be an IP address or localhost.
func ParseListen(s string) (netip.AddrPort, error) {
	bad := func() (netip.AddrPort, error) {
		return netip.AddrPort{}, bourse.Errorf(bourse.CodeInvalid, "address %s: use IP:PORT such as 127.0.0.1:4280", bourse.Quoted(s))
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return bad()
	}
	switch host {
	case "":
		host = "0.0.0.0"
	case "localhost":
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return bad()
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return bad()
	}
	return netip.AddrPortFrom(ip, uint16(n)), nil
}

// ParseSeconds parses a duration such as "30s" or "1m30s". As in flyctl, a number without a
// unit is in seconds.
func ParseSeconds(s string) (time.Duration, error) {
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(n) * time.Second, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, bourse.Errorf(bourse.CodeInvalid, "duration %s: use 30s, 1m30s or a number of seconds", bourse.Quoted(s))
	}
	return d, nil
}

// SecondsUp returns d in seconds, rounded up.
func SecondsUp(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }

// ParsePort parses a port number from 1 to 65535.
func ParsePort(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return int(n), err == nil && n > 0
}
