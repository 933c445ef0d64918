"""The parts of the codec: ``put_*`` writes a domain value into a message, ``take_*`` reads one out of it.

Writing fills a message in place, which costs a third of building it from parts. Both directions check what the
domain types do not say by themselves, so that whatever was written can be read. Only ``plainsong.codec`` is public.
"""
