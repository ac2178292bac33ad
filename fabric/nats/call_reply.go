package nats

import (
	"net/http"

	"github.com/bourse-dev/bourse/fabric"
)

// handle has the handler answer a call into h. It reports whether the reply is
// complete.
func (l *Link) handle(d *desk, c *served, h *fabric.Held) (whole bool) {
	if c.to != d.id {
		h.WriteHeader(statusAnother)
		return true
	}
	return fabric.ServeMessage(c.ctx, new(http.Request), &c.Message, d.handler, h, l.config.Log)
}

// reply sends what is held, in as many parts as it needs.
func (l *Link) reply(to string, h *fabric.Held) {
	b := h.Bytes()
	size, most := len(b)-partHeader, l.partMost()
	for offset := 0; offset == 0 || offset < size; offset += most {
		n := min(most, size-offset)
		// The header overwrites the end of the part before, which has left.
		one := b[offset : partHeader+offset+n]
		putPart(one, h.Status(), uint32(size), uint32(offset))
		if l.sent(l.nats.Publish(to, one)) != nil {
			l.breakCall(to)
			return
		}
	}
}

// breakCall notifies a caller that there will be no answer. If that cannot be
// sent now, a roll does it.
func (l *Link) breakCall(to string) { l.post(letter{to: to, data: []byte{byte(callBroken)}}) }

// partMost limits what one part of an answer carries, in bytes.
func (l *Link) partMost() int {
	if most := int(l.nats.MaxPayload()) - partHeader; most > 0 {
		return min(most, maxChunk)
	}
	return maxChunk // there is no NATS now
}
