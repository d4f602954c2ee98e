#!/bin/sh
# Fetches the kernels that the tests boot into a directory, where they stay:
#
#	getkernels.sh DIRECTORY
#
# They are Debian's, for virtual machines, each with its module for overlayfs. apt gets
# them with lists and settings of its own in DIRECTORY, so that signatures and checksums
# are checked as for all packages, root is not needed, and nothing of the machine's own
# apt is changed.
set -eu
dir=${1:?usage: getkernels.sh DIRECTORY}
mkdir -p "$dir"
cd "$dir"

fail() {
	echo "getkernels.sh: $*" >&2
	exit 1
}

# The series, and the package with its image: of several the newest.
kernels='5.10 linux-image-5\.10\.0-[0-9]+-cloud-amd64
6.1 linux-image-6\.1\.0-[0-9]+-cloud-amd64
6.12 linux-image-6\.12\.[0-9.]+\+deb12-cloud-amd64
6.18 linux-image-6\.18\.[0-9.]+\+deb13-cloud-amd64
7.2 linux-binary-7\.2\.[0-9.]+\+deb13-cloud-amd64'
suites='debian-security/bullseye-security debian-security/bookworm-security debian/trixie-backports'

if [ "$kernels" = "$(cat list 2>/dev/null)" ] && sha256sum --status -c SHA256SUMS; then
	exit 0
fi
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keyring" ] || fail "there is no $keyring: install debian-archive-keyring"

rm -rf apt list SHA256SUMS
mkdir -p apt/lists/partial apt/cache/archives/partial
for suite in $suites; do
	echo "deb [arch=amd64 signed-by=$keyring] http://deb.debian.org/${suite%/*} ${suite#*/} main"
done >apt/sources.list
cat >apt/apt.conf <<EOF
Dir::Etc::sourcelist "$PWD/apt/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$PWD/apt/lists";
Dir::State::status "/dev/null";
Dir::Cache "$PWD/apt/cache";
APT::Architecture "amd64";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
EOF
conf=$PWD/apt/apt.conf
apt-get -q -c "$conf" update >apt/log || fail "apt-get update: $(tail -n 3 apt/log)"
available=$(apt-cache -c "$conf" pkgnames linux-)

# unpack PACKAGE SERIES: keeps the image and the module that are in it
unpack() {
	(cd apt && apt-get -q -c "$conf" download "$1" >log) || fail "apt-get download $1: $(tail -n 3 apt/log)"
	dpkg-deb --fsys-tarfile apt/"$1"_*.deb >apt/tar
	rm apt/"$1"_*.deb
	for file in $(tar -tf apt/tar | grep -E '/vmlinuz[^/]*$|/overlay\.ko(\.xz)?$'); do
		case $file in
		*/vmlinuz*) tar -xOf apt/tar "$file" >"vmlinuz-$2" ;;
		*.xz) tar -xOf apt/tar "$file" | xz -dc >"overlay-$2.ko" ;;
		*) tar -xOf apt/tar "$file" >"overlay-$2.ko" ;;
		esac
	done
}

echo "$kernels" | while read -r series package; do
	newest=$(echo "$available" | grep -Ex "$package" | sort -V | tail -n 1)
	[ -n "$newest" ] || fail "Debian has no package $package any more"
	unpack "$newest" "$series"
	case $newest in linux-binary-*) unpack "linux-modules-${newest#linux-binary-}" "$series" ;; esac
	[ -s "vmlinuz-$series" ] && [ -s "overlay-$series.ko" ] || fail "$newest has no image or no module"
	echo "fetched Linux ${newest#linux-*-}"
done
sha256sum vmlinuz-* overlay-* >SHA256SUMS
rm -rf apt
echo "$kernels" >list
