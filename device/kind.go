package device

import (
	"fmt"
	"strconv"
	"strings"
)

// kindOf returns a model's name as orders have it: "NVIDIA A100-PCIE-40GB" is
// a100-pcie-40gb, "NVIDIA L40S" is l40s. The memory, in MiB, is added to the
// name of an A100 or H100 that lacks it, for those cards differ by it.
func kindOf(model string, memory int64) string {
	name := strings.ToLower(strings.TrimSpace(model))
	name = strings.TrimPrefix(name, "nvidia ")
	name = strings.TrimPrefix(name, "tesla ")
	var b strings.Builder
	for _, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	kind := strings.Trim(b.String(), "-")
	sized := strings.HasPrefix(kind, "a100") || strings.HasPrefix(kind, "h100")
	if sized && !strings.HasSuffix(kind, "gb") && memory > 0 {
		kind += fmt.Sprintf("-%dgb", (memory+512)/1024)
	}
	const most = 63 // what a name of a resource may have
	return strings.Trim(kind[:min(len(kind), most)], "-")
}

func parseCount(s string) (int64, error) { return strconv.ParseInt(strings.TrimSpace(s), 10, 64) }
