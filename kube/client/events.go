package client

import "strings"

// events finds where the events of a watch end. A watch is a sequence of JSON values, or
// of protobuf messages, each with its length in 4 bytes before it.
type events struct {
	protobuf bool
	size     int64 // of the current event, as far as it has arrived

	// For JSON.
	depth             int
	inString, escaped bool

	// For protobuf: the bytes of the length that have arrived, and the length.
	header int
	length int64
}

func newEvents(contentType string) *events {
	return &events{protobuf: strings.HasPrefix(contentType, "application/vnd.kubernetes.protobuf")}
}

// scan returns the size of the longest event of which data has a part, as far as it has
// arrived, and the number of events that end in data.
func (e *events) scan(data []byte) (longest, ended int64) {
	for len(data) > 0 {
		n, end := e.next(data)
		e.size += int64(n)
		longest = max(longest, e.size)
		if data = data[n:]; end {
			ended++
			e.size = 0
		}
	}
	return longest, ended
}

// next returns the number of bytes of data that belong to the current event, and whether
// the event ends with them.
func (e *events) next(data []byte) (n int, end bool) {
	if e.protobuf {
		return e.nextProtobuf(data)
	}
	for i, c := range data {
		switch {
		case e.escaped:
			e.escaped = false
		case e.inString:
			e.escaped, e.inString = c == '\\', c != '"'
		case c == '"':
			e.inString = true
		case c == '{' || c == '[':
			e.depth++
		case c == '}' || c == ']':
			if e.depth--; e.depth <= 0 {
				e.depth = 0
				return i + 1, true
			}
		}
	}
	return len(data), false
}

func (e *events) nextProtobuf(data []byte) (n int, end bool) {
	for n < len(data) && e.header < 4 {
		e.length = e.length<<8 | int64(data[n])
		e.header++
		n++
	}
	if e.header < 4 {
		return n, false
	}
	rest := e.length - (e.size + int64(n) - 4)
	if have := int64(len(data) - n); have < rest {
		return len(data), false
	}
	e.header, e.length = 0, 0
	return n + int(rest), true
}
