package view

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// ownPeer reports whether a process of this user sent a request from this machine. It does
// not where that is not known.
func ownPeer(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok {
		return false
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		if uid, ok := ownerOf(table, plainAddr(peer), plainAddr(local.AddrPort())); ok {
			return uid == os.Getuid()
		}
	}
	return false
}

// ownerOf returns the user whose socket is connected from one address to another. The
// kernel lists the sockets of this network namespace in a table.
func ownerOf(table string, from, to netip.AddrPort) (uid int, ok bool) {
	f, err := os.Open(table)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// sl, local address, remote address, state, queues, timer, retransmissions, uid
		words := strings.Fields(lines.Text())
		if len(words) < 8 || socketAddr(words[1]) != from || socketAddr(words[2]) != to {
			continue
		}
		uid, err := strconv.Atoi(words[7])
		return uid, err == nil
	}
	return 0, false
}

// socketAddr reads an address as the kernel's tables have it: 0100007F:1F90, in words of
// the machine's byte order. Text that is no address becomes the zero address.
func socketAddr(s string) netip.AddrPort {
	host, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(host)
	if err != nil || len(b)%4 != 0 {
		return netip.AddrPort{}
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	ip, _ := netip.AddrFromSlice(b)
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}
	}
	return plainAddr(netip.AddrPortFrom(ip, uint16(n)))
}

// plainAddr writes an address of version 4 in one way, and leaves out the zone.
func plainAddr(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
