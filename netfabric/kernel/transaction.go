//go:build linux

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	mdlayher "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/netfabric/plan"
)

const (
	// buffer is the size of the socket's buffers, in bytes. A transaction is one write, and
	// the kernel answers each of its messages.
	buffer = 16 << 20

	// patience is the time limit of a transaction.
	patience = 30 * time.Second
)

// transaction queues changes of nftables. commit makes all of them or none.
//
// The library cannot mark a map whose values are ranges, and nft 1.0.6 crashes when it lists
// a map of ranges with two keys and without that mark. So send adds the mark to the
// messages; the library's hook for a test socket passes them to it.
type transaction struct {
	*nftables.Conn
	namespace int
	rates     map[string]int // of plan.Rate, by the name of the set
	err       error          // of sending
}

func (k *Kernel) transaction() (tx *transaction, err error) {
	tx = &transaction{namespace: k.cfg.Namespace, rates: map[string]int{}}
	tx.Conn, err = nftables.New(nftables.WithTestDial(func(batch []mdlayher.Message) ([]mdlayher.Message, error) {
		if len(batch) > 0 {
			tx.err = tx.send(batch)
		}
		return nil, io.EOF // nothing is left to read: send has read the answers
	}))
	return tx, err
}

func (tx *transaction) commit() error {
	if err := tx.Flush(); err != nil {
		return err
	}
	return tx.err
}

// send sends the messages of a transaction and waits for the answers.
func (tx *transaction) send(batch []mdlayher.Message) error {
	conn, err := mdlayher.Dial(unix.NETLINK_NETFILTER, &mdlayher.Config{NetNS: tx.namespace})
	if err != nil {
		return err
	}
	defer conn.Close()
	err = errors.Join(conn.SetReadBuffer(buffer), conn.SetWriteBuffer(buffer), conn.SetDeadline(time.Now().Add(patience)))
	if err != nil {
		return err
	}
	answers := 0
	for i := range batch {
		if batch[i], err = tx.marked(batch[i]); err != nil {
			return err
		}
		if batch[i].Header.Flags&mdlayher.Acknowledge != 0 {
			answers++
		}
	}
	if _, err := conn.SendMessages(batch); err != nil {
		return err
	}
	return await(conn, answers)
}

// await reads that many answers, up to the first error.
func await(conn *mdlayher.Conn, answers int) error {
	for answers > 0 {
		messages, err := conn.Receive()
		if err != nil {
			return err
		}
		for _, m := range messages {
			if m.Header.Type == mdlayher.Error {
				answers--
			}
		}
	}
	return nil
}

// marked adds the mark of nft to a message that creates a map of ranges, and to one of a set of plan.Rate what
// each element does. The kernel uses the last of several attributes of one type.
func (tx *transaction) marked(m mdlayher.Message) (mdlayher.Message, error) {
	const newSet = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWSET
	if m.Header.Type != newSet {
		return m, nil
	}
	name, ranged := readNewSet(m)
	if rate := tx.rates[name]; rate > 0 {
		limit, err := expr.Marshal(unix.NFPROTO_INET, &expr.Limit{
			Type: expr.LimitTypePkts, Rate: uint64(rate), Unit: expr.LimitTimeSecond, Burst: uint32(plan.RateBurst * rate), Over: true,
		})
		if err != nil {
			return m, fmt.Errorf("limiting the elements of a set: %w", err)
		}
		const setExpr = 17
		return with(m, mdlayher.Attribute{Type: unix.NLA_F_NESTED | setExpr, Data: limit})
	}
	if !ranged {
		return m, nil
	}
	const bigEndian = 2
	var note []byte
	note = userdata.AppendUint32(note, userdata.NFTNL_UDATA_SET_KEYBYTEORDER, bigEndian)
	note = userdata.AppendUint32(note, userdata.NFTNL_UDATA_SET_DATABYTEORDER, bigEndian)
	note = userdata.AppendUint32(note, userdata.NFTNL_UDATA_SET_DATA_INTERVAL, 1)
	return with(m, mdlayher.Attribute{Type: unix.NFTA_SET_USERDATA, Data: note})
}

// readNewSet returns the name of the set that a message creates, and whether it is a map with values of
// two addresses.
func readNewSet(m mdlayher.Message) (name string, ranged bool) {
	ad, err := mdlayher.NewAttributeDecoder(m.Data[4:])
	if err != nil {
		return "", false
	}
	ad.ByteOrder = binary.BigEndian
	var kind, size uint32
	for ad.Next() {
		switch ad.Type() {
		case unix.NFTA_SET_NAME:
			name = ad.String()
		case unix.NFTA_SET_DATA_TYPE:
			kind = ad.Uint32()
		case unix.NFTA_SET_DATA_LEN:
			size = ad.Uint32()
		}
	}
	one := map[uint32]uint32{nftables.TypeIPAddr.GetNFTMagic(): 4, nftables.TypeIP6Addr.GetNFTMagic(): 16}[kind]
	return name, size == 2*one && one > 0
}

// with returns a message with one more attribute.
func with(m mdlayher.Message, one mdlayher.Attribute) (mdlayher.Message, error) {
	attr, err := mdlayher.MarshalAttributes([]mdlayher.Attribute{one})
	if err != nil {
		return m, fmt.Errorf("marking a set: %w", err)
	}
	m.Data = append(m.Data, attr...)
	m.Header.Length += uint32(len(attr))
	return m, nil
}
